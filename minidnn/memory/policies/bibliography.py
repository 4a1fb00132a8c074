"""The authors of each policy, and our assumptions where their text is silent: the one source for help, board and docs.

PAPERS has the main policies, VARIANTS the others. A test asks for an entry of each policy. RELATIVES has systems that
no policy follows, and what of minidnn's meets their ideas.

What follows a paper has the name of the paper's system. What is partial, or decides otherwise, is called "-style".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from minidnn.memory.policies.names import base


@dataclass(frozen=True)
class Paper:
    """Where a policy comes from.

    title:   of the paper; for a policy of minidnn's own, what it does
    authors: their names, separated by commas; empty for a policy of minidnn's own
    system:  the name that the paper gives to what the policy follows; empty if it gives none
    section: the part of the paper that the policy follows
    silent:  our assumptions where the text says nothing, or was not available, a sentence each
    style:   whether the policy deviates so far that it is called "-style"
    """

    title: str
    authors: str = ""
    system: str = ""
    venue: str = ""
    year: int | None = None
    section: str = ""
    silent: tuple[str, ...] = ()
    style: bool = False

    @property
    def called(self) -> str:
        """What the policy is called after the paper: "vDNN", "SuperNeurons-style"; empty if the paper has no name."""
        return f"{self.system}-style" if self.system and self.style else self.system

    @property
    def short(self) -> str:
        """The paper in a few words: "vDNN (Rhu et al. 2016)", "Chen et al. 2016", or "minidnn"."""
        if not self.authors:
            return "minidnn"
        first, *others = [name.split()[-1] for name in self.authors.split(", ")]
        who = first if not others else f"{first} and {others[0]}" if len(others) == 1 else f"{first} et al."
        return f"{self.called} ({who} {self.year})" if self.called else f"{who} {self.year}"


_VDNN = Paper(
    "vDNN: Virtualized Deep Neural Networks for Scalable, Memory-Efficient Neural Network Design",
    "Minsoo Rhu, Natalia Gimelshein, Jason Clemons, Arslan Zulfiqar, Stephen W. Keckler",
    "vDNN", "MICRO", 2016, "III",
    (
        "A map that backward does not read is freed, not offloaded.",
        "A forked map is offloaded if the policy offloads the input of any of its consumers.",
        "Layers that the paper does not mention (BatchNorm, Scale, LRN, Concat, Eltwise) count as feature extraction.",
    ),
)  # fmt: skip
_CHEN = Paper(
    "Training Deep Nets with Sublinear Memory Cost",
    "Tianqi Chen, Bing Xu, Chiyuan Zhang, Carlos Guestrin",
    "", "arXiv", 2016, "4",
)  # fmt: skip


_SUPERNEURONS = Paper(
    "SuperNeurons: Dynamic GPU Memory Management for Training Deep Neural Networks",
    "Linnan Wang, Jinmian Ye, Yiyang Zhao, Wei Wu, Ang Li, Shuaiwen Leon Song, Zenglin Xu, Tim Kraska",
    "SuperNeurons", "PPoPP", 2018, "3",
    (
        "The cache is simulated while planning, because a step is deterministic.",
        "A tensor is copied out once; what the host has already is not copied again.",
        "A prefetch begins at the convolution before, or as late as there is room for the tensor.",
        "Outputs of joins, concatenations and forks leave, too, not only those of convolutions.",
        "The tensor pool's memories besides the host's, of other GPUs and machines, are only simulated (`--peer`).",
    ),
)  # fmt: skip


def _as(paper: Paper, section: str, *silent: str, **others: Any) -> Paper:
    """Another part of the same paper."""
    return replace(paper, section=section, silent=silent, **others)


PAPERS: dict[str, Paper] = {
    "best": Paper(
        "minidnn's own: decides copies, recomputation and algorithms together, by cost, with a lower bound"
    ),
    "baseline": _as(
        _VDNN, "IV-A",
        "A graph that is not a chain has as many slots for gradient maps as are live at once.",
        "Gradients of weights are kept, too; the paper's bars omit them.",
        system="",
    ),
    "liveness": Paper(
        "minidnn's own: a tensor holds memory from its first access to its last, as in register allocation"
    ),
    "vdnn_all": _VDNN,
    "vdnn_dyn": _as(
        _VDNN, "III-C", *_VDNN.silent,
        "A trial is planned and simulated, not run.",
        "A trial fits if its placed arena keeps the budget.",
        "The greedy choice of algorithms starts with the fastest that fits beside the op's live tensors.",
    ),
    "vdnn_pp": Paper(
        "Dynamic Memory Management for GPU-Based Training of Deep Neural Networks",
        "S. B. Shriram, Anshuj Garg, Purushottam Kulkarni",
        "vDNN++", "IPDPS", 2019, "the abstract and the authors' code",
        (
            "The paper's text was not available: we followed its abstract and the authors' code.",
            "The original sleeps until a helper thread has freed enough memory; here the planner places the waits.",
            "A map whose memory no other tensor needs stays, and is not copied.",
        ),
    ),
    "superneurons_on_demand": _as(
        _SUPERNEURONS, "3", *_SUPERNEURONS.silent,
        "Cheap segments run again if the cache alone does not fit; the text does not say when they begin to.",
    ),
    "superneurons": _as(
        _SUPERNEURONS, "3", *_SUPERNEURONS.silent,
        "A tensor that will be evicted is copied out as soon as it has its value, not when memory runs out.",
        "The cache is simulated with and without recomputation, and the faster plan is taken.",
        "A tensor stays if its copy takes less time than the link's latency.",
        style=True,
    ),
    "layrub": Paper(
        "Layer-Centric Memory Reuse and Data Migration for Extreme-Scale Deep Learning on Many-Core Architectures",
        "Hai Jin, Bo Liu, Wenbin Jiang, Yang Ma, Xuanhua Shi, Bingsheng He, Shaofeng Zhao",
        "Layrub", "ACM TACO", 2018, "3",
        (
            "The batch is only fetched again, because the host still has it.",
            "A map that backward does not read is not fetched.",
            "Maps of the last layers stay, as in the authors' code.",
            "Every gradient overwrites its map if that is correct; the authors' code has a list of layer types.",
        ),
    ),
    "accudnn": Paper(
        "AccUDNN: A GPU Memory Efficient Accelerator for Training Ultra-Deep Neural Networks",
        "Jinrong Guo, Wantao Liu, Wang Wang, Chunrong Yao, Jizhong Han, Ruixuan Li, Yijun Lu, Songlin Hu",
        "AccUDNN", "ICCD", 2019, "the abstract",
        (
            "The paper's text was not available: the policy is a reconstruction from two sentences of its abstracts.",
            "The smallest set with hidden copies moves; tensors with long idle windows are added first.",
        ),
        style=True,
    ),
    "flashneuron": Paper(
        "FlashNeuron: SSD-Enabled Large-Batch Training of Very Deep Neural Networks",
        "Jonghyun Bae, Jongsung Lee, Yunho Jin, Sam Son, Shine Kim, Hakbeom Jang, Tae Jun Ham, Jae W. Lee",
        "FlashNeuron", "FAST", 2021, "the offloading scheduler",
        (
            "Nothing is compressed, so a compressible tensor takes as long as any other of its size.",
            "A copy takes the time of the link, or that of the disk if one is given and slower.",
            "A prefetch begins as late as it can stay hidden, by AccUDNN's model.",
            "If the placed arena exceeds the budget, selection continues with less memory.",
            "The paper's figures, measured with an SSD and a V100, are not reproduced.",
        ),
        style=True,
    ),
    "poet": Paper(
        "POET: Training Neural Networks on Tiny Devices with Integrated Rematerialization and Paging",
        "Shishir G. Patil, Paras Jain, Prabal Dutta, Ion Stoica, Joseph E. Gonzalez",
        "POET", "ICML", 2022, "4",
        (
            "The program minimises time instead of energy, and paging takes time.",
            "A stage takes as long as its ops or its copies, whichever is longer.",
            "The program also chooses each op's algorithm.",
            "Forward ops run again only within backward.",
            "If the placed arena exceeds the budget, the program is solved again with less memory.",
            "The paper's figures, energies of microcontrollers, are not reproduced.",
        ),
        style=True,
    ),
    "l2l": Paper(
        "Training Large Neural Networks with Constant Memory using a New Execution Algorithm",
        "Bharadwaj Pudipeddi, Maral Mesmakhosroshahi, Jinwen Xi, Sujeeth Bharadwaj",
        "L2L", "arXiv", 2020, "3",
        (
            "A step is one micro-batch; the paper runs each layer on many micro-batches before the next layer.",
            "The device updates the weights and fetches their momenta for this; in the paper the host may update them.",
            "Maps wait on the host, as in the paper's variant with constant memory.",
        ),
        style=True,
    ),
    "zero_offload": Paper(
        "ZeRO-Offload: Democratizing Billion-Scale Model Training",
        "Jie Ren, Samyam Rajbhandari, Reza Yazdani Aminabadi, Olatunji Ruwase, Shuangyan Yang, Minjia Zhang, Dong Li, "
        "Yuxiong He",
        "ZeRO-Offload", "USENIX ATC", 2021, "4.1",
        (
            "New weights arrive at the beginning of the next step, not at the end of this one.",
            "There is no one-step delayed update, because it changes results.",
            "The device computes the gradient norms that clipping and LARS need.",
            "The host updates only float32 weights, with our own C kernel; the device updates 16-bit weights.",
        ),
        style=True,
    ),
    "capuchin": Paper(
        "Capuchin: Tensor-based GPU Memory Management for Deep Learning",
        "Xuan Peng, Xuanhua Shi, Hulin Dai, Hai Jin, Weiliang Ma, Qian Xiong, Fan Yang, Xuehai Qian",
        "Capuchin", "ASPLOS", 2020, "the abstract",
        (
            "We had the abstract and summaries, not the paper's text.",
            "The observed iteration is the program's own order, with the times of the costs.",
            "Prefetches begin as late as possible without a wait, where the paper's feedback would converge.",
        ),
        style=True,
    ),
    "dtr": Paper(
        "Dynamic Tensor Rematerialization",
        "Marisa Kirisame, Steven Lyubomirsky, Altan Haan, Jennifer Brennan, Mike He, Jared Roesch, Tianqi Chen, "
        "Zachary Tatlock",
        "DTR", "ICLR", 2021, "3",
        (
            "The runtime is simulated while planning; the plan is the resulting order.",
            "Only forward ops run again; the paper may evict gradients, too.",
            "The plan knows the future: a tensor holds no memory between its last use and its next recomputation.",
            "An op that may overwrite a tensor does so; the prototype copies.",
            "Inputs stay until the runtime ends.",
            "In a large pool, only 256 random tensors (with a fixed seed) are considered.",
        ),
        style=True,
    ),
    "checkmate": Paper(
        "Checkmate: Breaking the Memory Wall with Optimal Tensor Rematerialization",
        "Paras Jain, Ajay Jain, Aniruddha Nrusimha, Amir Gholami, Pieter Abbeel, Kurt Keutzer, Ion Stoica, "
        "Joseph E. Gonzalez",
        "Checkmate", "MLSys", 2020, "the abstract and the authors' code",
        (
            "Backward ops run once, so there are only stages of backward.",
            "Long nets are reduced to 128 nodes and 128 stages, and HiGHS stops after a fixed number of steps.",
            "Rounding tries several fractions of the budget and 19 thresholds; the authors' code tries nine.",
            "A kept value is computed where it is first read, not where the program first says.",
            "Each order is evaluated with its exact memory, and counts if its placed arena keeps the budget.",
        ),
        style=True,
    ),
    "monet": Paper(
        "Memory Optimization for Deep Networks",
        "Aashaka Shah, Chao-Yuan Wu, Jayashree Mohan, Vijay Chidambaram, Philipp Krähenbühl",
        "MONeT", "ICLR", 2021, "the abstract and the authors' code",
        (
            "The notes on checkmate apply: the program is the same, with a variable for each algorithm.",
            "An op has one algorithm in a step, so that recomputation gives the same bits.",
            "The tensors that backward reads are a fact of the program, the same for all policies.",
            "The program is relaxed and rounded; the authors give their solver a day.",
        ),
        style=True,
    ),
    "sqrt_n": _as(
        _CHEN, "4, Algorithm 3",
        "Many segment sizes are tried; the one with the least memory for kept and recomputed tensors wins.",
        "A segment ends at the possible point that the fewest bytes cross.",
        "Under a budget only some segments run again, those with the lowest cost per byte first.",
    ),
    "checkpoint_blocks": _as(
        _CHEN, "4, general view",
        "Segments are the model's own blocks, as with torch.utils.checkpoint.",
        "Layer names identify the blocks.",
        "Within a block, ops that may not run again, such as those that change a tensor in place, keep their outputs.",
        "The last block runs again, too.",
    ),
    "selective": Paper(
        "Reducing Activation Recomputation in Large Transformer Models",
        "Vijay Korthikanti, Jared Casper, Sangkug Lym, Lawrence McAfee, Michael Andersch, Mohammad Shoeybi, "
        "Bryan Catanzaro",
        "", "arXiv", 2022, "5",
        (
            "The tensors that ops read identify the core of attention, not names.",
            "The core's last product need not run again, because its output is kept.",
            "A fused attention, which the paper does not have, runs again as a whole; its output is dropped.",
            "Sequence parallelism, the paper's other half, needs several ranks and is not included.",
        ),
    ),
    "recompute_all": _as(_CHEN, "4, general view", "Forward is halved by memory until one backward op fits."),
    "recompute_cheap": _as(
        _CHEN, "4, low-cost ops",
        "All ops are cheap except convolutions and inner products.",
        "A recomputed tensor is held until its next reader if that hardly raises the peak.",
        "Under a budget, the tensors with the highest recomputation cost per byte are kept.",
    ),
}  # fmt: skip

VARIANTS: dict[str, str] = {
    "baseline_sum": "baseline",
    "baseline_caffe": "baseline",
    "vdnn_conv": "vdnn_all",
    "vdnn_pp_conv": "vdnn_pp",
    "vdnn_pp_alt": "vdnn_pp",
    "superneurons_offload": "superneurons_on_demand",
    "superneurons_speed": "superneurons_on_demand",
    "superneurons_memory": "superneurons_on_demand",
    "superneurons_cost_aware": "superneurons_on_demand",
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


@dataclass(frozen=True)
class Relative:
    """A system that no policy follows.

    idea: what it proposed, as far as minidnn does the like
    here: what that is in minidnn
    """

    system: str
    who: str
    venue: str
    year: int
    idea: str
    here: str


RELATIVES = (
    Relative(
        "GeePS", "Cui et al.", "EuroSys", 2016,
        "a parameter server on GPUs, which also keeps what a layer needs in the CPU's memory until its turn comes",
        "host-resident weights and momenta (`--state`), `l2l`",
    ),
    Relative(
        "micro-cuDNN", "Oyama et al.", "CLUSTER", 2018,
        "a convolution runs on parts of the minibatch, so that a quick algorithm's workspace fits",
        "ops in parts of the batch (`@N`, `best`)",
    ),
    Relative(
        "Gist", "Jain et al.", "ISCA", 2018,
        "feature maps wait for backward in an encoding by layer: a bit for a ReLU's sign, sparse storage",
        "a byte mask for a ReLU (`--facts layrub`), storage without zeros (`--compress`)",
    ),
    Relative(
        "TFLMS", "Le et al.", "arXiv", 2018,
        "a graph is rewritten with ops that swap tensors out and in",
        "a plan that changes no layer and no number",
    ),
    Relative(
        "PoocH", "Ito et al.", "arXiv", 2019,
        "whether a layer's maps are swapped or made again is decided by a profile",
        "`best` and `capuchin`, by measured costs",
    ),
    Relative(
        "Layup", "Jiang et al.", "ACM TACO", 2019,
        "by some of Layrub's authors: the kind of layer decides whether its maps migrate or are made again",
        "`superneurons_cost_aware`, `best`",
    ),
    Relative(
        "SwapAdvisor", "Huang et al.", "ASPLOS", 2020,
        "the order of ops, the places of tensors and their swaps are searched for together, in a simulator",
        "`best`, which simulates its candidates; `minidnn pack` for places",
    ),
    Relative(
        "Echo", "Zheng et al.", "ISCA", 2020,
        "a compiler pass makes again what takes much memory and little time",
        "`recompute_cheap`",
    ),
    Relative(
        "Sentinel", "Ren et al.", "HPCA", 2021,
        "tensors migrate between a fast memory and a slow one by what was profiled of their lives",
        "staging with a store and a disk behind it (`--host-ring`, `--disk`)",
    ),
    Relative(
        "TSPLIT", "Nie et al.", "ICDE", 2022,
        "a tensor is split, and its parts are swapped or made again apart",
        "split regions (`@N`, `best`)",
    ),
    Relative(
        "FlexGen", "Sheng et al.", "ICML", 2023,
        "for inference: tensors are placed on GPU, CPU and disk by a linear program",
        "the relaxation by which `best` chooses what lives on the host; tiers with a disk",
    ),
    Relative(
        "Rockmate", "Zhao et al.", "ICML", 2023,
        "a model is a sequence of blocks: Checkmate's program within each, a dynamic program over all",
        "`checkmate` on groups of layers, `checkpoint_blocks`",
    ),
)  # fmt: skip
