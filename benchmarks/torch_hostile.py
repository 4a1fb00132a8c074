"""What a user reads of hostile PyTorch modules: whether each trains to the bytes of eager mode, or why it is refused.

python -m benchmarks.torch_hostile          the twelve, and their like
python -m benchmarks.torch_hostile --all    all of tests/torch/hostile.py
"""

from __future__ import annotations

import argparse
import textwrap
import warnings

import torch

from minidnn.errors import InvalidInput
from tests.torch import hostile
from tests.torch.test_hostile import train

PLANS = ("liveness", "sqrt_n", "vdnn_all")


def told(make) -> str:
    """One sentence about a case. Other errors than InvalidInput, and other bytes, are told in capital letters."""
    hostile.CALLS.clear()
    try:
        planned = []
        for policy in PLANS:
            planned.append(train(make, policy=policy))
            hostile.CALLS.clear()
    except InvalidInput as error:
        return str(error)
    except Exception as error:
        return f"A TRACEBACK: {type(error).__name__}: {error}"
    eager = train(make)
    wrong = [policy for policy, got in zip(PLANS, planned, strict=True) if got != eager]
    return f"OTHER BYTES under {', '.join(wrong)}" if wrong else "trains: all bytes are those of eager mode"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--all", action="store_true", help="all hostile modules, not the twelve alone")
    cases = {name: make for name, (make, _) in hostile.TWELVE.items()}
    if parser.parse_args().all:
        cases |= {name: make for name, (make, _) in hostile.REFUSED.items()} | hostile.TRAINED
    warnings.simplefilter("ignore")
    width = max(map(len, cases))
    print(f"PyTorch {torch.__version__}; policies {', '.join(PLANS)}\n")
    for name, make in cases.items():
        lines = textwrap.wrap(told(make), 110)
        print(f"{name:{width}}  {lines[0]}")
        print("".join(f"{'':{width}}  {line}\n" for line in lines[1:]), end="", flush=True)


if __name__ == "__main__":
    main()
