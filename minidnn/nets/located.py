"""Relative paths of data in a net's file: from the working folder, as in Caffe, or else from the folder of the file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from minidnn.schema import LayerParameter, NetParameter

FIELDS = (
    ("data_param", "source"),
    ("image_data_param", "source"),
    ("image_data_param", "root_folder"),
    ("hdf5_data_param", "source"),
    ("transform_param", "mean_file"),
)


def located(parameter: NetParameter, folder: str) -> NetParameter:
    """The net whose data are found from the working folder, where the file's relative paths lead nowhere from there,
    but do from `folder`."""
    layers = tuple(_located(layer, folder) for layer in parameter.layer) if folder not in ("", ".") else ()
    if all(new is old for new, old in zip(layers, parameter.layer, strict=False)):
        return parameter
    return parameter.model_copy(update={"layer": layers})


def nowhere(parameter: NetParameter) -> bool:
    """Whether a relative path of the net leads nowhere from the working folder."""
    given = (text for layer in parameter.layer for *_, text in _given(layer))
    return any(path and not os.path.isabs(path) and not os.path.exists(path) for _, path, _ in map(_parts, given))


def _located(layer: LayerParameter, folder: str) -> LayerParameter:
    update: dict[str, Any] = {}
    for message, field, text in _given(layer):
        before, path, after = _parts(text)
        beside = os.path.join(folder, path)
        if path and not os.path.isabs(path) and not os.path.exists(path) and os.path.exists(beside):
            end = "/" if path.endswith("/") and not beside.endswith("/") else ""
            old = update.get(message, getattr(layer, message))
            update[message] = old.model_copy(update={field: f"{before}{beside}{end}{after}"})
    moved = update.get("image_data_param")
    if moved is not None and not moved.root_folder and _relative(moved.source):
        update["image_data_param"] = moved.model_copy(update={"root_folder": f"{folder}/"})
    return layer.model_copy(update=update) if update else layer


def _given(layer: LayerParameter) -> Iterator[tuple[str, str, str]]:
    """(message, field, text) of each path that the layer gives."""
    for message, field in FIELDS:
        param = getattr(layer, message)
        if param is not None and (text := getattr(param, field)):
            yield message, field, text


def _parts(text: str) -> tuple[str, str, str]:
    """(what goes before it, path, what goes after it) of a source's text; an empty path if it has none."""
    from minidnn.data.sources import SOURCES, SPLITS

    word, colon, rest = text.partition(":")
    if word not in SOURCES:
        return "", text, ""
    kind = SOURCES[word]
    if not colon or not any(name in kind.form for name in ("PATH", "FILE", "FOLDER")):
        return text, "", ""
    head, _, last = rest.rpartition(":")
    return (f"{word}:", head, f":{last}") if kind.splits and last in SPLITS.values() else (f"{word}:", rest, "")


def _relative(source: str) -> bool:
    """Whether the first image of a list has a relative path, which is not there from the working folder."""
    from minidnn.data import DataError
    from minidnn.data.image_list import first

    try:
        name = first(source)
    except DataError:
        return False
    return not os.path.isabs(name) and not os.path.exists(name)
