"""The authors of each policy, and our assumptions where their text is silent: the one source for help, board and docs.

PAPERS has the main policies, VARIANTS the others. A test asks for an entry of each policy.
"""

from __future__ import annotations

from dataclasses import dataclass

from minidnn.memory.policies.names import base


@dataclass(frozen=True)
class Paper:
    """Where a policy comes from.

    title:   of the paper; for a policy of minidnn's own, what it does
    authors: their names, separated by commas; empty for a policy of minidnn's own
    section: the part of the paper that the policy follows
    silent:  what our reading assumes where the text says nothing, or was not to be had, a sentence each
    style:   whether the policy deviates so far that it is called "-style"
    """

    title: str
    authors: str = ""
    venue: str = ""
    year: int | None = None
    section: str = ""
    silent: tuple[str, ...] = ()
    style: bool = False

    @property
    def short(self) -> str:
        """The paper in a few words: "Rhu et al., MICRO 2016", or "minidnn" for a policy of its own."""
        if not self.authors:
            return "minidnn"
        first, *others = [name.split()[-1] for name in self.authors.split(", ")]
        who = first if not others else f"{first} and {others[0]}" if len(others) == 1 else f"{first} et al."
        return f"{who}, {self.venue} {self.year}"


_VDNN = Paper(
    "vDNN: Virtualized Deep Neural Networks for Scalable, Memory-Efficient Neural Network Design",
    "Minsoo Rhu, Natalia Gimelshein, Jason Clemons, Arslan Zulfiqar, Stephen W. Keckler",
    "MICRO", 2016, "III",
    (
        "A map that nothing in backward reads is freed, not offloaded.",
        "A forked map is offloaded if any of its consumers is of a kind that offloads.",
        "Layers that the paper does not know (BatchNorm, Scale, LRN, Concat, Eltwise) count as feature extraction.",
    ),
)  # fmt: skip
_CHEN = Paper(
    "Training Deep Nets with Sublinear Memory Cost",
    "Tianqi Chen, Bing Xu, Chiyuan Zhang, Carlos Guestrin",
    "arXiv", 2016, "4",
)  # fmt: skip


def _as(paper: Paper, section: str, *silent: str) -> Paper:
    """Another part of the same paper."""
    return Paper(paper.title, paper.authors, paper.venue, paper.year, section, silent)


PAPERS: dict[str, Paper] = {
    "best": Paper(
        "minidnn's own: copies, runs again and algorithms decided together, by costs, above a bound",
        silent=(
            "Parts of the batch were proposed for workspaces by micro-cuDNN (Oyama et al., CLUSTER 2018), and for "
            "tensors by TSPLIT (Nie et al., ICDE 2022).",
        ),
    ),
    "baseline": _as(
        _VDNN, "IV-A",
        "Graphs that are no chain take as many slots for gradient maps as are alive at once.",
        "The gradients of weights are held, too; the paper's bars leave them out.",
    ),
    "liveness": Paper(
        "minidnn's own: each tensor has bytes from its first access to its last, as a compiler allocates registers"
    ),
    "vdnn_all": _VDNN,
    "vdnn_dyn": _as(
        _VDNN, "III-C", *_VDNN.silent,
        "A trial fits if its placed arena keeps the budget.",
        "The greedy choice of algorithms begins with the fastest that fits beside an op's live bytes.",
    ),
    "vdnn_pp": Paper(
        "Dynamic Memory Management for GPU-Based Training of Deep Neural Networks",
        "S. B. Shriram, Anshuj Garg, Purushottam Kulkarni",
        "IPDPS", 2019, "abstract and code",
        (
            "The paper's text was not to be had: we followed its abstract and the authors' code.",
            "The original sleeps until a helper thread frees enough; here the points of waiting are planned.",
            "A map whose bytes no other tensor needs stays, and is not copied.",
        ),
    ),
    "superneurons": Paper(
        "SuperNeurons: Dynamic GPU Memory Management for Training Deep Neural Networks",
        "Linnan Wang, Jinmian Ye, Yiyang Zhao, Wei Wu, Ang Li, Shuaiwen Leon Song, Zenglin Xu, Tim Kraska",
        "PPoPP", 2018, "3",
        (
            "The cache is simulated while planning, since a step is deterministic.",
            "So a tensor that will have to leave is copied out as soon as it has its value, not when room is needed.",
            "The cache alone, and runs again with the cache, are both simulated, and the quicker is taken.",
            "The results of joins, concatenations and forks leave, too, not those of convolutions alone.",
            "Tensors whose copy takes less time than the link's latency stay.",
        ),
        style=True,
    ),
    "layrub": Paper(
        "Layer-Centric Memory Reuse and Data Migration for Extreme-Scale Deep Learning on Many-Core Architectures",
        "Hai Jin, Bo Liu, Wenbin Jiang, Yang Ma, Xuanhua Shi, Bingsheng He, Shaofeng Zhao",
        "ACM TACO", 2018, "3",
        (
            "The batch is only fetched again, since the host still has it.",
            "A map that backward does not read is not fetched.",
            "Maps of the last layers stay, as in the authors' code.",
            "Every gradient takes its map's bytes where that is right; the code has a list of layer types.",
        ),
    ),
    "accudnn": Paper(
        "AccUDNN: A GPU Memory Efficient Accelerator for Training Ultra-Deep Neural Networks",
        "Jinrong Guo, Wantao Liu, Wang Wang, Chunrong Yao, Jizhong Han, Ruixuan Li, Yijun Lu, Songlin Hu",
        "ICCD", 2019, "abstract",
        (
            "The paper's text was not to be had: the policy is a reconstruction from two sentences of its abstracts.",
            "The set that moves is the smallest whose copies are hidden; tensors with long idle windows join first.",
        ),
        style=True,
    ),
    "flashneuron": Paper(
        "FlashNeuron: SSD-Enabled Large-Batch Training of Very Deep Neural Networks",
        "Jonghyun Bae, Jongsung Lee, Yunho Jin, Sam Son, Shine Kim, Hakbeom Jang, Tae Jun Ham, Jae W. Lee",
        "FAST", 2021, "offloading scheduler",
        (
            "Nothing is packed on the way, so a compressible tensor takes as long as any other of its size.",
            "Copies take the link's time, or the disk's where one is given that is slower.",
            "A tensor comes back as late as its copy stays hidden, by AccUDNN's model.",
            "Selection goes on with less memory where the placed arena exceeds the budget.",
            "The paper's figures are measured with an SSD beside a V100, and are not reproduced.",
        ),
        style=True,
    ),
    "poet": Paper(
        "POET: Training Neural Networks on Tiny Devices with Integrated Rematerialization and Paging",
        "Shishir G. Patil, Paras Jain, Prabal Dutta, Ion Stoica, Joseph E. Gonzalez",
        "ICML", 2022, "4",
        (
            "Seconds are minimised, not energy, and paging takes time.",
            "A stage takes as long as its ops or its copies, whichever is longest.",
            "Each op's algorithm is decided, too.",
            "Ops of forward run again within backward only.",
            "The program is solved again with less memory where the placed arena exceeds the budget.",
            "The paper's figures are energies of microcontrollers, and are not reproduced.",
        ),
        style=True,
    ),
    "l2l": Paper(
        "Training Large Neural Networks with Constant Memory using a New Execution Algorithm",
        "Bharadwaj Pudipeddi, Maral Mesmakhosroshahi, Jinwen Xi, Sujeeth Bharadwaj",
        "arXiv", 2020, "3",
        (
            "A step is one micro-batch; the paper runs each layer on many before the next layer.",
            "The device updates the weights, whose momenta come for it; in the paper the host may.",
            "Maps wait on the host, as in the variant with constant memory.",
        ),
        style=True,
    ),
    "zero_offload": Paper(
        "ZeRO-Offload: Democratizing Billion-Scale Model Training",
        "Jie Ren, Samyam Rajbhandari, Reza Yazdani Aminabadi, Olatunji Ruwase, Shuangyan Yang, Minjia Zhang, Dong Li, "
        "Yuxiong He",
        "USENIX ATC", 2021, "4.1",
        (
            "New weights come at the beginning of the next step, not at the end of this one.",
            "There is no one-step delayed update, since it changes the numbers.",
            "The device makes the norms of gradients that clipping and LARS need.",
            "The host updates in float32 alone, by a C kernel of our own; the device updates weights of 16 bits.",
        ),
        style=True,
    ),
    "capuchin": Paper(
        "Capuchin: Tensor-based GPU Memory Management for Deep Learning",
        "Xuan Peng, Xuanhua Shi, Hulin Dai, Hai Jin, Weiliang Ma, Qian Xiong, Fan Yang, Xuehai Qian",
        "ASPLOS", 2020, "the abstract",
        (
            "We had the abstract and summaries, not the text.",
            "The watched iteration is the program's own order with the seconds of its costs.",
            "Copies back begin as late as they may without being waited for, where the paper's feedback would end.",
        ),
        style=True,
    ),
    "dtr": Paper(
        "Dynamic Tensor Rematerialization",
        "Marisa Kirisame, Steven Lyubomirsky, Altan Haan, Jennifer Brennan, Mike He, Jared Roesch, Tianqi Chen, "
        "Zachary Tatlock",
        "ICLR", 2021, "3",
        (
            "The runtime is simulated while planning; the plan is the order that it makes.",
            "Only forward ops run again; the paper may evict gradients, too.",
            "The plan knows the future: a tensor has no bytes between its last use and its next run.",
            "An op that may write over a tensor does so, where the prototype copies.",
            "Inputs stay until the runtime ends.",
            "Of a large pool 256 tensors are looked at, chosen at random with one seed.",
        ),
        style=True,
    ),
    "checkmate": Paper(
        "Checkmate: Breaking the Memory Wall with Optimal Tensor Rematerialization",
        "Paras Jain, Ajay Jain, Aniruddha Nrusimha, Amir Gholami, Pieter Abbeel, Kurt Keutzer, Ion Stoica, "
        "Joseph E. Gonzalez",
        "MLSys", 2020, "the abstract, and the authors' code",
        (
            "Ops of backward run once, so stages are those of backward alone.",
            "Long nets become 128 nodes and 128 stages, and HiGHS stops after a number of steps.",
            "Several parts of the budget and 19 thresholds are tried where a relaxation is rounded; the code has nine.",
            "What is kept is made where it is first read, not where the program says first.",
            "Each order is weighed with its exact bytes, and counts if its placed arena keeps the budget.",
        ),
        style=True,
    ),
    "monet": Paper(
        "Memory Optimization for Deep Networks",
        "Aashaka Shah, Chao-Yuan Wu, Jayashree Mohan, Vijay Chidambaram, Philipp Krähenbühl",
        "ICLR", 2021, "the abstract, and the authors' code",
        (
            "What is said of checkmate, whose program it is with a variable for each algorithm.",
            "An op has one algorithm in a step, so that runs again have the same bits.",
            "What backward reads is a fact of the program, the same for all policies.",
            "The program is relaxed and rounded, where the authors give their solver a day.",
        ),
        style=True,
    ),
    "sqrt_n": _as(
        _CHEN, "4, Algorithm 3",
        "Many segment sizes are tried; the one with the least bytes kept and made again is taken.",
        "Of the points where a segment may end, one wins where the fewest bytes cross.",
        "Under a budget only some segments run again, those with the fewest seconds per byte first.",
    ),
    "checkpoint_blocks": _as(
        _CHEN, "4, general view",
        "Segments are a model's own blocks, as users of torch.utils.checkpoint have them.",
        "Blocks are found by the names of layers.",
        "A block is kept inside where no op of it may run again, as one that changes a tensor in place.",
        "The last block runs again, too.",
    ),
    "selective": Paper(
        "Reducing Activation Recomputation in Large Transformer Models",
        "Vijay Korthikanti, Jared Casper, Sangkug Lym, Lawrence McAfee, Michael Andersch, Mohammad Shoeybi, "
        "Bryan Catanzaro",
        "arXiv", 2022, "5",
        (
            "The core of attention is found by what ops read, not by names.",
            "The core's last product need not run again, since its result is kept.",
            "A fused attention, which the paper does not know, runs again whole, and its result is dropped.",
            "Sequence parallelism, the paper's other half, is for several ranks, and not here.",
        ),
    ),
    "recompute_all": _as(_CHEN, "4, general view", "Forward is halved by bytes, down to what one backward needs."),
    "recompute_cheap": _as(
        _CHEN, "4, low-cost ops",
        "All ops are cheap but convolutions and inner products.",
        "A result that is made again is held until its next reader if that hardly raises the peak.",
        "Under a budget the tensors with the most seconds of runs per byte are held.",
    ),
}  # fmt: skip

VARIANTS: dict[str, str] = {
    "baseline_sum": "baseline",
    "baseline_caffe": "baseline",
    "vdnn_conv": "vdnn_all",
    "vdnn_pp_conv": "vdnn_pp",
    "vdnn_pp_alt": "vdnn_pp",
    "superneurons_offload": "superneurons",
    "superneurons_speed": "superneurons",
    "superneurons_memory": "superneurons",
    "superneurons_cost_aware": "superneurons",
    "layrub_intra": "layrub",
    "layrub_inter": "layrub",
    "layrub_2018": "layrub",
    "layrub_2018_intra": "layrub",
    "layrub_2018_inter": "layrub",
}  # {policy: the main policy of its paper}


def paper(policy: str) -> Paper | None:
    """The paper of a policy, whatever the suffixes of its name; None for a policy of the user's own."""
    name = base(policy)
    return PAPERS.get(VARIANTS.get(name, name))
