"""The user's line, whatever the user's files and folders are called."""

from __future__ import annotations

import contextlib
import runpy
from pathlib import Path

import numpy as np
import pytest

from minidnn import errors
from minidnn.errors import InvalidInput
from minidnn.torch.installed import torch_folder
from minidnn.torch.user_code import is_users_file, watched

pytestmark = pytest.mark.peer("torch")

MODULE = """
import torch

class Asks(torch.nn.Linear):
    def forward(self, x):
        if self.weight.sum() > 0:  # line 6
            return x
        return super().forward(x)

class Fails(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x[:, 1:])  # line 12
"""


@pytest.mark.parametrize("kind", ["Asks", "Fails"])
@pytest.mark.parametrize(
    "name", ["my_compile.py", "my_contextlib.py", "contextlib.py", "places.py", "importlib/net.py"]
)
def test_an_error_names_the_line_of_a_file_of_any_name(tmp_path, name, kind):
    import torch

    from minidnn.torch.eager import predict
    from minidnn.torch.step import compile

    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(MODULE)
    module = runpy.run_path(str(file))[kind](4, 4)
    line = {"Asks": 6, "Fails": 12}[kind]
    for run in (compile(module, loss=lambda y, t: (y - t).sum()), lambda *args: predict(module, args, loss=torch.dist)):
        with pytest.raises(InvalidInput, match=rf"{name}:{line}\b"):
            run(torch.ones(2, 4), torch.ones(2, 4))


@pytest.mark.parametrize("name", ["my_compile.py", "contextlib.py", "torch/net.py"])
def test_a_users_file_is_known_by_its_folder(tmp_path, name):
    assert is_users_file(str(tmp_path / name)) and watched(str(tmp_path / name))


def test_a_folder_that_begins_as_another_is_called_is_another():
    for folder in (torch_folder(), Path(np.__file__).parent, Path(errors.__file__).parent):
        assert is_users_file(f"{folder}_work/net.py")
    vision = f"{torch_folder()}vision/models/resnet.py"
    assert is_users_file(vision) and not watched(vision)
    for file in (torch_folder() / "_compile.py", np.__file__, errors.__file__, contextlib.__file__):
        assert not is_users_file(str(file))
