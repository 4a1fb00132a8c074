"""`minidnn generate MODEL --weights FILE --prompt TEXT`: what a trained net goes on with, token by token."""

from __future__ import annotations

import argparse
import codecs
import sys
from time import perf_counter

from minidnn.cli.help import examples
from minidnn.cli.options import common, given, opened
from minidnn.cli.subject import NETS, check_weights, tell_unobeyed, understood, weights
from minidnn.cli.values import at_least_zero, positive
from minidnn.spoken import many


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = examples(
        "minidnn generate gpt.yaml --weights out/gpt_iter_800.safetensors --prompt 'The plan '",
        "minidnn generate gpt.yaml --weights out/gpt_iter_800.safetensors --prompt 12,7 --count 20 --temperature 0",
    )
    parser.add_argument("model", metavar="MODEL", help=f"a model file ({NETS}) whose data source is tokens: or text:")
    weights(parser)
    what = "the text to continue; for a net of token ids, ids separated by commas"
    parser.add_argument("--prompt", required=True, metavar="TEXT", help=what)
    parser.add_argument("--count", type=positive, default=200, metavar="N", help="tokens to generate (default: 200)")
    what = "divide scores by this before drawing a token; 0 takes the likeliest (default: 1)"
    parser.add_argument("--temperature", type=at_least_zero, default=1.0, metavar="T", help=what)
    what = "draw from the N likeliest tokens only (default: from all)"
    parser.add_argument("--top-k", type=positive, metavar="N", help=what)
    what = "run the whole window for each token instead of keeping keys and values: the same text, more slowly"
    parser.add_argument("--no-cache", action="store_true", help=what)
    common(
        parser, "policy", "budget", "host_budget", "ram", "seed", "device", "set", "modules", "ignore_unknown", "json"
    )
    parser.set_defaults(batch=None)


def run(args: argparse.Namespace) -> int:
    from minidnn.jobs.setting import Setting
    from minidnn.nets.placed import Mixing
    from minidnn.report import table
    from minidnn.results.runs import Generated
    from minidnn.training.generate import Cached, Generator, Sampling, Writer, tokens_of
    from minidnn.visible import flow, say

    net, _, solver = understood(args.model, args)
    check_weights(args, (net,))
    made = Generator.of(net)
    of_text = made.text
    prompt = tokens_of(args.prompt, made.classes, of_text)
    setting = opened(args, Setting.of({**given(args), "keep": [made.scores]}, solver))
    tell_unobeyed((net,), solver, setting)
    sampling = Sampling(args.temperature, args.top_k, setting.seed)
    found: list[int] = []
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def opened_writer() -> Writer:
        if args.no_cache:
            return made.opened(setting, cached=False)
        try:
            return made.opened(setting)
        except Mixing as error:
            say(f"minidnn: {error}; keys and values are not kept, so each token takes a whole window", file=sys.stderr)
            return made.opened(setting, cached=False)

    with opened_writer() as writer:
        if args.weights:
            writer.session.load(args.weights, complete=True)
        began = perf_counter()
        for token in writer.go_on(prompt, args.count, sampling):
            if not found and not args.json and of_text:
                flow(bytes(prompt).decode(errors="replace"))
            found.append(token)
            if not args.json:
                flow(decoder.decode(bytes([token])) if of_text else f"{token} ")
        seconds, cached = perf_counter() - began, isinstance(writer, Cached)
    if args.json:
        text = bytes(found).decode(errors="replace") if of_text else None
        table.dump(Generated(prompt=prompt, continuation=found, text=text, cached=cached, elapsed_seconds=seconds))
    else:
        flow(f"{decoder.decode(b'', True)}\n")
        say(f"minidnn: {many(len(found), 'token')}, {len(found) / seconds:.4g} tokens/s", file=sys.stderr)
    return 0
