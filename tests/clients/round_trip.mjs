// Asks the server at the URL given, puts what came out back in, twice: whole answers and streamed ones.
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "none", maxRetries: 0 });
const ask = (messages) => ({ model: "m", messages, max_tokens: 8, temperature: 0 });

async function trips(answer) {
  const messages = [{ role: "user", content: "Name a colour." }];
  for (let trip = 0; trip < 2; trip++) {
    const message = await answer(messages);
    if (!message.content) throw new Error("no content");
    messages.push(message, { role: "user", content: "And another." });
  }
  await answer(messages);
  return messages.filter((message) => message.role === "assistant").length;
}

const whole = async (messages) => (await client.chat.completions.create(ask(messages))).choices[0].message;
const streamed = (messages) => client.chat.completions.stream(ask(messages)).finalMessage();
console.log("whole", await trips(whole));
console.log("stream", await trips(streamed));
