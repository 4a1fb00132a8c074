"""`make gpu-check`: all that only a GPU can show, in one command of less than nine minutes.

    python3 -m benchmarks.gpu_check                     everything that this code has not shown yet on this card
    python3 -m benchmarks.gpu_check --only a,b --again  these items, whatever was shown before
    python3 -m benchmarks.gpu_check --rehearse          the same script on a CUDA of the host's memory, in small

Items, most important first (ITEMS in __main__.py); each is a file here, and runs in a process of its own:

    a  operations  every op kind and every algorithm against the reference
    b  policies    every policy leaves the bytes that baseline leaves; compute-sanitizer's memcheck
    h  properties  the card's properties as cuDNN lists them, and its plans beside those found without the card
    g  link        bytes per second out, in, both at once, and beside compute
    d  speed       iteration time and peak memory beside PyTorch's
    c  digits      real digits learned to 97 %
    f  foresight   predicted against measured time and peak
    e  tight       large nets in 12 GiB, beside PyTorch's checkpoint and save_on_cpu

What is found goes to benchmarks/results/<card>/: results.jsonl, a line as soon as a case is done, and results.md, the
table made of it. Nothing is installed: requirements/gpu-check.txt says what has to be on the Python path.
"""
