"""`make gpu-check`: all that only a GPU can show, in one command of less than nine minutes.

    python3 -m benchmarks.gpu_check                     everything that this code has not shown yet on this card
    python3 -m benchmarks.gpu_check --only a,b --again  these items, whatever was shown before
    python3 -m benchmarks.gpu_check --rehearse          the same script on a CUDA of the host's memory, in small

Items, most important first (ITEMS in __main__.py, with the seconds of each); each is a file here, and runs in a process
of its own:

    s  start       seconds until something runs, and free memory at each stage: what to look at first on a new card
    a  operations  every op kind and every algorithm against the reference, in every number format, also in a capture
    b  policies    every policy leaves the bytes that baseline leaves; compute-sanitizer's memcheck
    g  link        bytes per second out, in, both at once, beside compute, and in a replayed graph
    d  speed       iteration time and peak memory beside PyTorch's, in float32 and bfloat16
    c  digits      real digits learned to 97 %, in every number format
    f  foresight   predicted against measured time and peak, and how fast is copied while a net is trained
    e  tight       large nets in 12 GiB, beside PyTorch's checkpoint and save_on_cpu
    h  properties  the card's properties as cuDNN lists them, and its plans beside those found without the card
    k  compiled    PyTorch's torch.compile, with the time that is left

What is found goes to benchmarks/results/<card>/: results.jsonl, a line as soon as a case is done; results.md, the table
made of it, which begins with the goals of the cuda backend, met or missed; results.json, the same for programs;
results.svg, times and peaks beside PyTorch's. Nothing is installed: requirements/gpu-check.txt says what has to be on
the Python path, and how to run it on a machine that is lent for half an hour.
"""
