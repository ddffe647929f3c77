"""The bidirectional LSTM acoustic model of A(DP)2SGD.

References
----------
Appendix of the A(DP)2SGD paper: 6 bidirectional layers of 512 cells each way, a linear projection to 256 units, 32,000
classes, subsequences of 21 frames of 260 features; "over 43 million parameters and about 165 MB". Cells: Hochreiter
and Schmidhuber, "Long short-term memory", Neural Computation 1997, with forget gates.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gossamer.errors import ModelError


class LstmDirection(nn.Module):
    """One LSTM layer that reads a sequence forwards or backwards.

    The gates are two linear layers, so that per-example gradients can be taken layer by layer; ``torch.nn.LSTM``
    computes the same in one fused kernel that hides its inputs.

    Parameters
    ----------
    inputs, cells : int
        Sizes of one frame and of the state.
    backwards : bool
    """

    def __init__(self, inputs: int, cells: int, *, backwards: bool) -> None:
        super().__init__()
        self.cells = cells
        self.backwards = backwards
        self.from_input = nn.Linear(inputs, 4 * cells)
        self.from_state = nn.Linear(cells, 4 * cells)

    def forward(self, frames: Tensor) -> Tensor:
        """States [examples, frames, cells] after each of ``frames`` [examples, frames, inputs]."""
        driven = self.from_input(frames).unbind(1)
        state = cell = frames.new_zeros(frames.shape[0], self.cells)
        states = []
        for drive in reversed(driven) if self.backwards else driven:
            gate_in, gate_forget, candidate, gate_out = (drive + self.from_state(state)).chunk(4, dim=1)
            cell = gate_forget.sigmoid() * cell + gate_in.sigmoid() * candidate.tanh()
            state = gate_out.sigmoid() * cell.tanh()
            states.append(state)
        return torch.stack(states[::-1] if self.backwards else states, dim=1)


class LSTM(nn.Module):
    """Bidirectional LSTM layers, a linear projection, and scores of the class of the middle frame, or of every frame.

    The paper's model learns the class of every frame.

    Parameters
    ----------
    input_shape : tuple of int
        [frames, features].
    classes : int
    layers : int
    cells : int
        Number of cells in each direction of each layer.
    projection : int
        Units of the linear layer below the scores.
    every : bool
        Whether there are scores of every frame.
    """

    def __init__(
        self,
        input_shape: tuple[int, ...],
        classes: int,
        *,
        layers: int = 6,
        cells: int = 512,
        projection: int = 256,
        every: bool = False,
    ) -> None:
        if len(input_shape) != 2:
            raise ModelError(f"lstm takes sequences [frames, features], found examples of shape {list(input_shape)}")
        super().__init__()
        self.middle, self.every = input_shape[0] // 2, every
        sizes = [input_shape[1], *[2 * cells] * (layers - 1)]
        self.forwards = nn.ModuleList(LstmDirection(size, cells, backwards=False) for size in sizes)
        self.backwards = nn.ModuleList(LstmDirection(size, cells, backwards=True) for size in sizes)
        self.projection = nn.Linear(2 * cells, projection)
        self.output = nn.Linear(projection, classes)

    def forward(self, frames: Tensor) -> Tensor:
        """Scores [examples, classes], or [examples, frames, classes], of ``frames`` [examples, frames, features]."""
        for ahead, back in zip(self.forwards, self.backwards):
            frames = torch.cat((ahead(frames), back(frames)), dim=2)
        scores: Tensor = self.output(self.projection(frames if self.every else frames[:, self.middle]))
        return scores
