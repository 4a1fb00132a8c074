"""`make gpu-check`: all checks and measurements that need a GPU, in one command of less than nine minutes.

    python3 -m benchmarks.gpu_check                     all cases that this code has not passed yet on this card
    python3 -m benchmarks.gpu_check --new               all cases that no code has passed in the last three hours
    python3 -m benchmarks.gpu_check --only a,b --again  all cases of these items
    python3 -m benchmarks.gpu_check --rehearse          the same script, small, on a CUDA in the host's memory

Items, most important first (`ITEMS` in benchmarks/gpu_check/__main__.py, with the seconds of each). Each is a file in
this folder and runs in a process of its own:

    s  start       seconds until something runs, and free memory at each stage: look at these first on a new card
    a  operations  every op kind and every algorithm against the reference, in float32 and bfloat16, also in a capture,
                   and cuDNN's with more than 2^31 elements
    g  link        bytes per second out, in, both at once, during compute, and in a replayed graph
    m  products    MatMul and Attention on tensor cores and without, beside PyTorch's
    d  speed       iteration time and peak memory compared with PyTorch's, net by net, GPT-2 among them, in float32 and
                   bfloat16
    e  tight       large nets in 12 GiB, compared with PyTorch's checkpoint and save_on_cpu
    u  updates     a large net whose weights the host updates, in a replayed graph: losses, seconds
    l  brief       small batches, where launches count, beside PyTorch
    t  steps       steps of PyTorch modules under minidnn.torch
    b  policies    every policy ends with the same bytes as baseline; compute-sanitizer's memcheck
    p  half        item a in float16
    c  digits      real digits learned to 97 %, in every number format, and by `minidnn train`
    f  foresight   predicted against measured time and peak, and the rate of copies while a net is trained
    h  properties  the card's properties as cuDNN lists them, and its plans compared with those found without the card
    n  ranks       NCCL with one rank, which sends to itself, also in a replayed graph
    k  compiled    PyTorch's torch.compile, in the time that is left

The results go to benchmarks/results/<card>/. results.jsonl gets a line as soon as a case is done. The other files are
made from it: results.md, a table that begins with the goals of the cuda backend, met or missed; results.json, the same
for programs; results.svg, times and peaks compared with PyTorch's. Nothing is installed. requirements/gpu-check.txt
says which packages have to be on the Python path, and how to run the command on a machine that is lent for half an
hour.
"""
