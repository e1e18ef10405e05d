"""Twenty questions that newcomers ask first: how many answers are right?

Run:  python benchmarks/first_questions.py [MODEL] [--dtype float32] [--samples 24] [--seed 3]
Each question is asked as a chat of one message, with the settings that the model's makers recommend, and answered that many
times. An answer is right if it holds what must be in it. Prints the share of right answers, question by question and in all.
docs/accuracy.md has what came out.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence

from octavo import LLM, SamplingParams
from octavo.config.loading import DEFAULT_MODEL

QUESTIONS = {
    "What is the capital of France?": r"paris",
    "What is 2+2?": r"\b4\b|four",
    "Who wrote Romeo and Juliet?": r"shakespeare",
    "What is the largest planet?": r"largest planet.{0,40} jupiter|^jupiter",
    "Translate 'good morning' to French.": r"bonjour",
    "What is the capital of Germany?": r"berlin",
    "Why is the sky blue?": r"scatter",
    "How many days are in a week?": r"\b7\b|seven",
    "What is water made of?": r"hydrogen.*oxygen|oxygen.*hydrogen",
    "Name three colors.": r"red|blue|green",
    "List three fruits.": r"apple|banana|orange",
    "What is the speed of light?": r"299|300,000|186,",
    "Who was Albert Einstein?": r"physicist",
    "What is Python?": r"programming|language",
    "What is the capital of Italy?": r"rome",
    "What is the capital of Spain?": r"madrid",
    "What is the capital of Japan?": r"tokyo",
    "What color is grass?": r"green",
    "How many legs does a dog have?": r"\b4\b|four",
    "What do bees make?": r"honey",
}
"""Question and what a right answer holds, in lower case."""
MAX_TOKENS = 40
MAX_MODEL_LEN = 1024


def share_right(pattern: str, answers: Sequence[str]) -> float:
    """Share of the answers in which the pattern is found; the case of letters does not matter."""
    return sum(re.search(pattern, answer.lower(), re.DOTALL) is not None for answer in answers) / len(answers)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default=DEFAULT_MODEL)
    parser.add_argument("--dtype", default="auto", help="as for octavo serve")
    parser.add_argument("--samples", type=int, default=24, help="answers to each question, 1 to 64")
    parser.add_argument("--seed", type=int, default=3)
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    chats = [[{"role": "user", "content": question}] for question in QUESTIONS]
    with LLM(arguments.model, dtype=arguments.dtype, max_model_len=MAX_MODEL_LEN) as llm:
        sampling = llm.get_default_sampling_params()
        sampling = SamplingParams(
            n=arguments.samples,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            max_tokens=MAX_TOKENS,
            seed=arguments.seed,
        )
        outputs = llm.chat(chats, sampling)
    shares = []
    for (question, pattern), output in zip(QUESTIONS.items(), outputs, strict=True):
        answers = [choice.text for choice in output.outputs]
        shares.append(share_right(pattern, answers))
        print(f"{shares[-1]:.2f}  {question:38s} {answers[0][:70]!r}")
    print(f"{sum(shares) / len(shares):.2f}  all, temperature {sampling.temperature:g}, top_p {sampling.top_p:g}")


if __name__ == "__main__":
    main()
