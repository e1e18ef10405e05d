"""What n-gram guesses gain, and what they cost where there is nothing to guess: on and off in alternation, in one engine.

    python benchmarks/speculation.py [MODEL] [--turns 5] [--clients 1 16] [--temperature 0]

Four tasks: a text that is copied and corrected, an edit of code, a story, a summary; for each number of clients medians of
output tokens per second without and with guesses, the median of the ratios of neighbouring turns, and the guesses. Each task is
run once before the clock, so that the model of step times knows the machine. The answers of both ways must have the same
tokens; a difference ends the run.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from dataclasses import dataclass

from octavo import LLM, SamplingParams

TEXT = (
    "Their are many reasons why people keep bees. Some want the honey, some want the wax, and some just like too watch them. "
    "A hive holds up to sixty thousand bees in summer, and fewer then ten thousand in winter. The queen lays all the eggs; the "
    "workers feed the young, clean the cells and guard the door. In spring the bees fly out when the sun is warm and come home "
    "with pollen on there legs. A keeper opens the hive once a weak, looks for new cells and makes shure that there is room."
)
CODE = '''class Account:
    """Money of one customer."""

    def __init__(self, owner, balance=0):
        self.owner = owner
        self.balance = balance
        self.history = []

    def deposit(self, amount):
        if amount <= 0:
            raise ValueError("the amount must be above zero")
        self.balance += amount
        self.history.append(("deposit", amount))
        return self.balance

    def withdraw(self, amount):
        if amount <= 0:
            raise ValueError("the amount must be above zero")
        if amount > self.balance:
            raise ValueError("there is not enough money")
        self.balance -= amount
        self.history.append(("withdraw", amount))
        return self.balance
'''
TASKS = {
    "copy and correct": f"Write this text again and correct its spelling. Change nothing else.\n\n{TEXT}",
    "code edit": f"Rename the variable balance to total in this code. Write the whole code again.\n\n```python\n{CODE}```",
    "story": "Write a story about a lighthouse keeper who finds a bottle with a letter in it.",
    "summary": f"Summarise this text in three sentences of your own.\n\n{TEXT}",
}


@dataclass(frozen=True)
class Turn:
    """tokens_per_s over all clients; drafted and accepted guesses; the tokens of each answer."""

    tokens_per_s: float
    num_drafted: int
    num_accepted: int
    answers: list[list[int]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="smollm2-135m-instruct")
    parser.add_argument("--turns", type=int, default=5, help="of each way")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--max-tokens", type=int, default=160)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--config", default='{"method": "ngram"}', help="--speculative-config of the engine")
    options = parser.parse_args()
    llm = LLM(options.model, speculative_config=options.config, max_model_len=2048, max_num_seqs=max(options.clients))
    print(f"{'task':<18}{'clients':>8}{'off tok/s':>11}{'on tok/s':>10}{'ratio':>8}{'drafted':>9}{'accepted':>10}")
    for clients in options.clients:
        for name, task in TASKS.items():
            plain, guessed = alternate(llm, task, clients, options)
            ratios = [on.tokens_per_s / off.tokens_per_s for off, on in zip(plain, guessed, strict=True)]
            drafted, accepted = sum(turn.num_drafted for turn in guessed), sum(turn.num_accepted for turn in guessed)
            print(
                f"{name:<18}{clients:>8}{median(plain):>11.1f}{median(guessed):>10.1f}{statistics.median(ratios):>8.3f}"
                f"{drafted:>9}{accepted:>10}",
                flush=True,
            )


def alternate(llm: LLM, task: str, clients: int, options: argparse.Namespace) -> tuple[list[Turn], list[Turn]]:
    """Turns without and with guesses, one after the other; first one of each that does not count."""
    plain: list[Turn] = []
    guessed: list[Turn] = []
    for turn in range(options.turns + 1):
        # Who goes first changes, so that a machine that becomes slower harms both alike.
        for is_on in (turn % 2 == 0, turn % 2 == 1):
            (guessed if is_on else plain).append(run(llm, task, clients, options, None if is_on else 0))
        if plain[-1].answers != guessed[-1].answers:
            sys.exit(f"{task[:40]!r}: the answers with and without guesses differ")
    return plain[1:], guessed[1:]


def run(llm: LLM, task: str, clients: int, options: argparse.Namespace, number: int | None) -> Turn:
    """All clients ask at once, each with a number of its own in the question, so that no two answers are the same."""
    chats = [[{"role": "user", "content": f"{task}\n\n(Request {client + 1})"}] for client in range(clients)]
    params = [
        SamplingParams(
            temperature=options.temperature, seed=client, max_tokens=options.max_tokens, num_speculative_tokens=number
        )
        for client in range(clients)
    ]
    start_s = time.perf_counter()
    outputs = llm.chat(chats, params, use_tqdm=False)
    elapsed_s = time.perf_counter() - start_s
    answers = [output.outputs[0].token_ids for output in outputs]
    records = [output.metrics for output in outputs if output.metrics is not None]
    return Turn(
        sum(map(len, answers)) / elapsed_s,
        sum(record.num_drafted_tokens for record in records),
        sum(record.num_accepted_tokens for record in records),
        answers,
    )


def median(turns: list[Turn]) -> float:
    return statistics.median(turn.tokens_per_s for turn in turns)


if __name__ == "__main__":
    main()
