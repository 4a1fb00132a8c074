"""Nets beside OpenCV, which reads Caffe's files with code of its own: their outputs for random weights and images.

Each net becomes a prototxt from its images to its scores, and a caffemodel. OpenCV's last output is compared
with ours: the largest difference, relative to the largest value. benchmarks/published.py calls this.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from minidnn.nets.net import Net
from minidnn.schema import LayerParameter, NetParameter
from minidnn.training import caffemodel
from minidnn.training.session import Session


def deployed(net: Net) -> Net:
    """The net of phase TEST from its images to its scores: no labels, nothing that reads them."""
    graph = net.graph("TEST")
    layers, gone = [], set()
    for node in graph.layers:
        spec: LayerParameter = node.layer.spec
        if not node.bottoms:
            first = node.tops[0]
            layers.append({"name": first.name, "type": "Input", "top": first.name,
                           "input_param": {"shape": {"dim": [1, *first.tensor.shape[1:]]}}})  # fmt: skip
            gone |= {top.name for top in node.tops[1:]}
        elif (
            node.layer.loss
            or node.layer.labels is not None
            or node.layer.probabilities  # random scores are so large that all but one chance would be 0
            or gone & {blob.name for blob in node.bottoms}
        ):
            gone |= {top.name for top in node.tops}
        else:
            layers.append(spec.model_copy(update={"include": (), "exclude": ()}))
            layers[-1].model_fields_set.difference_update({"include", "exclude"})
    made = [LayerParameter.model_validate(one) if isinstance(one, dict) else one for one in layers]
    read = {bottom for layer in made for bottom in layer.bottom}
    made = [layer for layer in made if layer.bottom or read & set(layer.top)]  # an input of targets has no reader now
    return Net.from_parameter(NetParameter(name=net.name or "net", layer=tuple(made)))


def randomized(session: Session, seed: int = 0) -> None:
    """Draw all weights that are zero, and all statistics. A file for inference has no fillers."""
    random = np.random.default_rng(seed)
    for blobs in session.params.values():
        for name in blobs:
            value = blobs[name]
            if name in ("variance_sum", "factor", "gamma"):
                blobs[name] = random.uniform(0.5, 1.5, value.shape)
            elif not value.any() and value.ndim > 1:
                blobs[name] = random.normal(0, np.sqrt(2 / value[0].size), value.shape).astype(np.float32)
            elif not value.any():  # biases, means
                blobs[name] = random.uniform(-0.1, 0.1, value.shape)


def compared(net: Net, folder: Path, seed: int = 0) -> dict[str, float]:
    """The largest difference from OpenCV, and from one image to the other, relative to our largest value."""
    import cv2

    random = np.random.default_rng(seed)
    with Session(net, device="cpu", policy="liveness") as session:
        randomized(session, seed)
        weights = {layer: [blobs.rows(name) for name in blobs] for layer, blobs in session.params.items()}
        (node,) = (node for node in session.graphs["TEST"].layers if not node.bottoms)
        images = random.uniform(-1, 1, (2, *node.tops[0].tensor.shape[1:])).astype(np.float32)
        outputs = session.forward(images)
        with open(folder / "net.caffemodel", "wb") as file:
            file.writelines(caffemodel.pieces(net.parameter, weights))
    text = net.to_prototxt().replace("round_mode: FLOOR", "ceil_mode: false")  # OpenCV has forks' name alone
    (folder / "net.prototxt").write_text(text)
    theirs = cv2.dnn.readNetFromCaffe(str(folder / "net.prototxt"), str(folder / "net.caffemodel"))
    ours, found = outputs[list(outputs)[-1]], []
    for image in images:
        theirs.setInput(image[None])
        found.append(theirs.forward(theirs.getLayerNames()[-1]).reshape(ours.shape[1:]))
    largest = abs(ours).max()
    return {
        "difference": float(abs(np.stack(found) - ours).max() / largest),
        "moved": float(abs(ours[0] - ours[1]).max() / largest),
        "largest": float(largest),
    }
