"""The parameters of a file of PyTorch's newer exporter (`dynamo=True`), which notes them.

A note of the graph lists the module's parameters and buffers, and a note of each node the operation of PyTorch that it
comes from, with the parameters that this read. So two things that the exporter's optimizer does can be undone: it joins
initializers of equal values, such as the biases of a new module, and it transposes weights of products. What else it
folds is lost to training: BatchNorms, and rows that constant indices take from a table.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from minidnn.onnx.origins import Origins
from minidnn.onnx.package import onnx
from minidnn.onnx.weight import Weight

CALL = 'torch.onnx.export(model.train(), samples, "FILE.onnx", dynamo=True, optimize=False)'
SIGNATURE = "pkg.torch.export.ExportedProgram.graph_signature"
_ENTRY = re.compile(r"^(\w+): (\w+) target='([^']+)'", re.MULTILINE)
_MOVED = re.compile(r"^(\w+): BUFFER_MUTATION target='([^']+)'", re.MULTILINE)
_OF_BATCH_NORM = ("running_mean", "running_var", "num_batches_tracked")
_RESHAPING = ("prelu", "group_norm", "instance_norm", "native_group_norm")  # they only give parameters more axes
_VIEWS = ("t", "transpose", "permute", "view", "reshape", "unsqueeze", "squeeze", "flatten")


def noted(model: Any) -> bool:
    """Whether the file has the exporter's list of parameters."""
    return bool(_note(model.graph, SIGNATURE))


def _note(proto: Any, key: str) -> str:
    return next((p.value for p in proto.metadata_props if p.key == key), "")


def exported(model: Any, arrays: Mapping[str, np.ndarray]) -> Origins:
    """The origins of the file's numbers."""
    return _Exported(model, arrays).result


class _Exported:
    def __init__(self, model: Any, arrays: Mapping[str, np.ndarray]) -> None:
        entries = _ENTRY.findall(_note(model.graph, SIGNATURE))
        self.targets = {placeholder: target for placeholder, kind, target in entries if kind == "PARAMETER"}
        self.kinds = {placeholder: kind for placeholder, kind, _ in entries}
        self.names = set(self.targets.values())
        self.arrays = dict(arrays)
        self.folded = {v.name: _folded_from(v) for v in model.graph.value_info if v.name in arrays}
        self.bound: set[str] = set()
        self.before: dict[int, list[Any]] = {}  # nodes to add, by the number of the node that they come before
        self.result = Origins(list(model.graph.node), {})
        groups: dict[str, list[int]] = {}
        for k, node in enumerate(self.result.nodes):
            groups.setdefault(_note(node, "pkg.torch.onnx.fx_node") or f"node {k}", []).append(k)
        for call, members in groups.items():
            self._group(call, members)
        self.result.constants = {n: v for n, v in self.arrays.items() if n not in self.result.parameters}
        self._unbound(groups)
        self._detached(groups)
        moved = [b for _, b in _MOVED.findall(_note(model.graph, SIGNATURE)) if not b.endswith(_OF_BATCH_NORM)]
        read = _read(model.graph)
        self.result.unlike += [f"the module changes its buffer {b!r} in each step, and minidnn would leave it as it is"
                               for b in moved if b in read]  # fmt: skip

    def _detached(self, groups: Mapping[str, list[int]]) -> None:
        """Note values without gradients of which the optimizer has left out the Identity that says so."""
        there = {match[1] for call in groups if (match := re.match(r"%(\w+)", call))}
        for name in sorted({n for call in groups for n in re.findall(r"%(detach(?:_\d+)?)\b", call)} - there):
            if name not in self.kinds:
                self.result.problems.append(f"the exporter has left out that {name!r} lets no gradient through")

    def _group(self, call: str, members: list[int]) -> None:
        """The nodes that one operation of PyTorch became: they read the parameters that it read."""
        self._free_statistics(members)
        noted = [p for p in dict.fromkeys(re.findall(r"%(\w+)", call)) if p in self.kinds]
        wanted = [self.targets[p] for p in noted if p in self.targets]
        used = [n for k in members for n in self.result.nodes[k].input if n in self.arrays]
        used = [n for n in dict.fromkeys(used) if self.arrays[n].dtype.kind == "f"]
        kinds = {n: target for n in used if (target := self._parameter(n, call, members))}
        if lost := self._batch_norm(call, members):
            self.result.problems.append(lost)
            self.bound.update(wanted)
            wanted, noted = [], []
        chosen = {n: t for n, t in kinds.items() if t in wanted or self._is_result(n) or not _operation(call) or lost}
        left = [n for n in kinds if n not in chosen]
        rest = [t for t in wanted if t not in chosen.values()]
        if left and not rest and len(noted) > len(wanted):  # they stand for buffers of equal values
            for n in left:
                self._detach(n, members)
        elif len(left) == len(rest):  # joined with others of equal values: in the order of the operation
            chosen |= dict(zip(left, rest, strict=True))
        else:
            chosen |= self._matched(left, rest, kinds, call)
        for n, target in chosen.items():
            self._bind(n, target, members)
        self._restore(wanted, members)

    def _matched(self, left: list[str], rest: list[str], kinds: Mapping[str, str], call: str) -> dict[str, str]:
        """What initializers stand for that the operation did not read by their names: what it read of a like name; or
        themselves, if their numbers are such that no other value has them by chance."""
        result: dict[str, str] = {}
        for n in left:
            alike = [t for t in rest if t not in result.values() and t[-4:] == kinds[n][-4:]]
            if len(alike) == 1:
                result[n] = alike[0]
            elif not rest and self.arrays[n].size > 1 and np.ptp(self.arrays[n]):
                result[n] = kinds[n]
            else:
                self.result.problems.append(f"it is not noted which parameter {n!r} stands for in {_operation(call)}")
        return result

    def _free_statistics(self, members: list[int]) -> None:
        """Let no BatchNormalization take a parameter as its running statistics, with whose values they were joined."""
        for k in members:
            node = self.result.nodes[k]
            if node.op_type == "BatchNormalization":
                for n in node.input[3:5]:
                    if n in self.names:
                        inputs = list(self.result.nodes[k].input)
                        place = inputs.index(n, 3)
                        inputs[place] = f"{n}, as statistics {k}.{place}"
                        self.arrays[inputs[place]] = self.arrays[n]
                        self._replace(k, inputs)

    def _detach(self, name: str, members: list[int]) -> None:
        """Let these nodes read a constant of the initializer's numbers."""
        value = f"{name}, as constant"
        self.arrays[value] = self.arrays[name]
        for k in members:
            self._replace(k, [value if n == name else n for n in self.result.nodes[k].input])

    def _is_result(self, name: str) -> bool:
        """Whether a value is what an operation of PyTorch gives, not a part of one."""
        return name not in self.names and not re.match(r"val_\d+$", name)

    def _parameter(self, name: str, call: str, members: list[int]) -> str | None:
        """The parameter whose numbers, perhaps turned, a value has; None if it is a constant of the file."""
        if name in self.names and not self.folded.get(name):
            return name
        if name in self.names:
            self.result.problems.append(f"the exporter has given what it computed the name of the parameter {name!r}")
            return None
        sources = [s for s in self.folded.get(name, ()) if s in self.names]
        if not sources:
            return None
        numbers, alone = self.arrays[name], len(self.folded[name]) == 1
        operation = re.sub(r"_\d+$", "", name)
        part = len(sources) == 1 and re.match(r"val_\d+$", name)
        if part and (_operation(call) in _RESHAPING or (_operation(call) == "linear" and alone)):
            return sources[0]
        if len(sources) == 1 and operation in _VIEWS and numbers.ndim <= 2 and self._alone(name, call, members):
            return sources[0]
        spread = operation in ("embedding", "expand") and _root(operation, numbers) is not None
        if len(sources) == 1 and spread and self._alone(name, call, members):
            return sources[0]
        what = " and ".join(sources)
        self.result.problems.append(f"the exporter has computed the constant {name!r} from the parameter {what}")
        return None

    def _alone(self, name: str, call: str, members: list[int]) -> bool:
        """Whether the operation itself read the value, and no other of equal numbers that was joined with it."""
        reads = sum(list(self.result.nodes[k].input).count(name) for k in members)
        return reads <= len(re.findall(rf"%{re.escape(name)}\b", call.partition("args = ")[2]))

    def _bind(self, name: str, target: str, members: list[int]) -> None:
        """Let the nodes read the parameter `target` where they read the initializer `name`."""
        self.bound.add(target)
        numbers, operation = self.arrays[name], re.sub(r"_\d+$", "", name)
        weight = Weight(numbers, target, True)
        if name not in self.names and operation in ("val", "t", "transpose", "permute") and numbers.ndim == 2:
            weight = Weight(numbers.T, target, True).transposed((1, 0))
        elif name not in self.names and operation == "expand":
            weight = Weight(numbers[:1], target, True)
            self._spread(name, target, weight, members)
            return
        value = target if name in self.names else f"{target}, as {name}"
        self.result.parameters[value] = weight
        for k in members:
            self._replace(k, [value if n == name else n for n in self.result.nodes[k].input])

    def _spread(self, name: str, target: str, weight: Weight, members: list[int]) -> None:
        """Expand the parameter again where its expansion was folded."""
        self.result.parameters[target] = weight
        helper, shape = onnx().helper, f"{name}.shape"
        tensor = onnx().numpy_helper.from_array(np.array(self.arrays[name].shape, np.int64), shape)
        length = helper.make_node("Constant", [], [shape], value=tensor)
        expand = helper.make_node("Expand", [target, shape], [f"{name}.again"], name=f"{name}.again")
        if not any(expand.output[0] in node.output for nodes in self.before.values() for node in nodes):
            self.before.setdefault(members[0], []).extend([length, expand])
        for k in members:
            self._replace(k, [f"{name}.again" if n == name else n for n in self.result.nodes[k].input])

    def _replace(self, k: int, inputs: list[str]) -> None:
        node = self.result.nodes[k]
        if list(node.input) != inputs:
            changed = type(node)()
            changed.CopyFrom(node)
            del changed.input[:]
            changed.input.extend(inputs)
            self.result.nodes[k] = changed

    def _batch_norm(self, call: str, members: list[int]) -> str:
        """Why a BatchNorm is lost; "" if there is none."""
        nodes = [self.result.nodes[k] for k in members]
        rules = " ".join(_note(n, "pkg.onnxscript.rewriter.rule_name") for n in nodes)
        kept = any(n.op_type == "BatchNormalization" for n in nodes)
        if kept or ("batch_norm" not in _operation(call) and "FuseBatchNorm" not in rules):
            return ""
        scope = _note(nodes[0], "pkg.torch.onnx.name_scopes")
        names = ast.literal_eval(scope) if scope.startswith("[") else []
        return (
            f"the exporter has folded the BatchNorm {(names[-2] if len(names) > 1 else '?')!r} into what is before it"
        )

    def _restore(self, wanted: list[str], members: list[int]) -> None:
        """Give back a bias that the optimizer has left out because it is zero."""
        for k in members:
            node = self.result.nodes[k]
            if "RemoveOptionalBias" not in _note(node, "pkg.onnxscript.rewriter.rule_name"):
                continue
            rest = [t for t in wanted if t not in self.bound]
            weight = self.result.parameters.get(node.input[1]) if len(node.input) == 2 else None
            if len(rest) == 1 and weight is not None:
                self.bound.add(rest[0])
                self.result.parameters[rest[0]] = Weight(np.zeros(_outputs(node, weight), np.float32), rest[0], True)
                self._replace(k, [*node.input, rest[0]])

    def _unbound(self, groups: Mapping[str, list[int]]) -> None:
        self.result.nodes = [n for k, node in enumerate(self.result.nodes) for n in (*self.before.get(k, ()), node)]
        said = " ".join(self.result.problems)
        for call in groups:
            for placeholder in re.findall(r"%(\w+)", call):
                target = self.targets.get(placeholder)
                if target and target not in self.bound and target not in said:
                    self.bound.add(target)
                    self.result.problems.append(f"the exporter has folded the parameter {target!r} into a constant")
        self.result.problems = list(dict.fromkeys(self.result.problems))


def _read(graph: Any) -> set[str]:
    """The values on which the graph's outputs depend."""
    result = {o.name for o in graph.output}
    for node in reversed(graph.node):
        if result.intersection(node.output):
            result.update(node.input)
    return result


def _folded_from(value: Any) -> list[str]:
    text = _note(value, "pkg.onnxscript.optimizer.folded_from")
    return [str(n) for n in ast.literal_eval(text)] if text.startswith("[") else []


def _operation(call: str) -> str:
    """The operation of PyTorch: linear."""
    match = re.search(r"target=torch\.ops\.aten\.(\w+)", call)
    return match.group(1) if match else ""


def _root(operation: str, numbers: np.ndarray) -> np.ndarray | None:
    """The rows of the parameter that was spread or read to these numbers; None if they cannot be told."""
    if operation == "embedding":
        rows = numbers.reshape(-1, numbers.shape[-1])
        return numbers if len(np.unique(rows, axis=0)) == len(rows) and numbers.ndim == 2 else None
    if numbers.ndim < 2 or not (numbers == numbers[:1]).all():
        return None
    for axis in range(1, numbers.ndim - 1):
        if numbers.shape[axis] > 1 and (numbers == numbers.take([0], axis)).all():
            return None
    return numbers[:1]


def _outputs(node: Any, weight: Weight) -> int:
    """How many numbers the bias of a Conv, a ConvTranspose or a Gemm has."""
    attributes = {a.name: a.i for a in node.attribute}
    if node.op_type == "ConvTranspose":
        return weight.shape[1] * attributes.get("group", 1)
    return weight.shape[0 if node.op_type == "Conv" or attributes.get("transB", 0) else 1]
