"""Gradients of stacked GRUs and LSTMs by hand, backward through time.

All that goes into a second is one matrix z_t = (h_t; x_t; 1) of shape [rows, batch], so that one
product with a matrix of all weights gives all gate sums, and one product of their slopes with z_tᵀ
the gradient of all weights. The batch comes last, which leaves every gate of a second in one piece
of memory. Buffers are made once and serve all steps.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from fedwatt.models.loss import Loss
from fedwatt.models.model import Parts

# (slope of y, y, out) → slope of x for y = σ(x) and y = tanh(x), in one pass.
_sigmoid_slope = torch.ops.aten.sigmoid_backward.grad_input
_tanh_slope = torch.ops.aten.tanh_backward.grad_input


class Unrolled(ABC):
    """P networks on `windows` [P, batch, seconds, features].

    `here` and `there` are a layout's views of their weights and of where gradients go; without
    `there` nothing is kept that only a gradient needs.
    """

    blocks: ClassVar[tuple[tuple[int, bool, bool], ...]]
    """For each of four blocks of gate sums: which gate of the layout it belongs to, and whether
    the state and the input (with their biases) have a part in it. Those with a sigmoid first."""
    sigmoids: ClassVar[int]
    """How many of the blocks have one."""
    passes_by: ClassVar[bool]
    """Whether part of the state goes on to the next second past all gates."""

    def __init__(self, here: Parts, windows: Tensor, there: Parts | None = None) -> None:
        stack, batch, seconds, features = windows.shape
        hidden = here["output.weight"].shape[-2]
        self.here, self.there, self.windows, self.hidden = here, there or {}, windows, hidden
        self.seconds = range(seconds)
        # The zeros of h_0 and the row of ones stay; h_1, h_2, ... and x are filled in.
        z = windows.new_zeros((seconds + 1, stack, hidden + features + 1, batch))
        z[:, :, -1] = 1
        self.z = z.unbind(0)
        self.h = [now[:, :hidden] for now in self.z]
        self.x = z[:-1, :, hidden:-1]
        self.matrix = windows.new_zeros((stack, 4 * hidden, z.shape[2]))
        # Its gradient lies the other way round, which is quicker to add up.
        self.sums = windows.new_empty((stack, z.shape[2], 4 * hidden))
        self.whole = self.each_second(4 * hidden)
        self.gates = [now.chunk(4, dim=1) for now in self.whole]
        self.open = [now[:, : self.sigmoids * hidden] for now in self.whole]
        self.slope = windows.new_empty((stack, 4 * hidden, batch))
        self.slopes = self.slope.chunk(4, dim=1)
        self.open_slope = self.slope[:, : self.sigmoids * hidden]
        self.dh = windows.new_empty((stack, hidden, batch))
        self.scratch = torch.empty_like(self.dh)

    def each_second(self, rows: int) -> list[Tensor]:
        """[P, rows, batch] for every second; the same memory for all where nothing is kept."""
        shape = (self.windows.shape[0], rows, self.windows.shape[1])
        if not self.there:
            return [self.windows.new_empty(shape)] * len(self.seconds)
        return list(self.windows.new_empty((len(self.seconds), *shape)).unbind(0))

    def read(self) -> None:
        """Take in `windows` as they are now."""
        self.x.copy_(self.windows.permute(2, 0, 3, 1))

    def predict(self) -> Tensor:
        """Predictions [P, batch] for the windows read, with the weights as they are now."""
        self.pack()
        for t in self.seconds:
            torch.bmm(self.matrix, self.z[t], out=self.whole[t])
            self.forward(t)
        # A sum and not a product with one column, which would round differently in a stack of one.
        weighted = torch.mul(self.h[-1], self.here["output.weight"], out=self.scratch)
        return weighted.sum(dim=1).add_(self.here["output.bias"])

    def fill(self, labels: Tensor, share: Tensor, loss: Loss) -> None:
        """Write the gradient for what `windows` and the weights are now."""
        self.read()
        error = loss.slope(self.predict(), labels).mul_(share)
        last, output = self.h[-1], self.here["output.weight"]
        torch.bmm(last, error.unsqueeze(-1), out=self.there["output.weight"])
        torch.sum(error, dim=1, keepdim=True, out=self.there["output.bias"])
        torch.mul(output, error.unsqueeze(1), out=self.dh)
        self.sums.zero_()
        back, turned = self.matrix[:, :, : self.hidden].mT, self.slope.mT
        for t in reversed(self.seconds):
            self.backward(t)
            self.sums.baddbmm_(self.z[t], turned)
            if self.passes_by:
                self.dh.baddbmm_(back, self.slope)
            else:
                torch.bmm(back, self.slope, out=self.dh)
        self.unpack()

    def places(self, block: int) -> tuple[slice, slice]:
        """(rows of `matrix` of a block of gate sums, columns of its gate in the layout)."""
        gate, width = self.blocks[block][0], self.hidden
        return slice(block * width, (block + 1) * width), slice(gate * width, (gate + 1) * width)

    def pack(self) -> None:
        """Put the weights as they are now into `matrix`: a row of (W_h; W_x; b) for each sum."""
        for block, (_, state, inputs) in enumerate(self.blocks):
            rows, columns = self.places(block)
            to = self.matrix[:, rows]
            bias = to[:, :, -1].zero_()
            if state:
                to[:, :, : self.hidden] = self.here["recurrent.weight"][..., columns].mT
                bias += self.here["recurrent.bias"][:, columns]
            if inputs:
                to[:, :, self.hidden : -1] = self.here["input.weight"][..., columns].mT
                bias += self.here["input.bias"][:, columns]

    def unpack(self) -> None:
        """Put `sums`, the gradient of `matrix`, where it belongs."""
        for block, (_, state, inputs) in enumerate(self.blocks):
            rows, columns = self.places(block)
            of = self.sums[:, :, rows]
            if state:
                self.there["recurrent.weight"][..., columns] = of[:, : self.hidden]
                self.there["recurrent.bias"][:, columns] = of[:, -1]
            if inputs:
                self.there["input.weight"][..., columns] = of[:, self.hidden : -1]
                self.there["input.bias"][:, columns] = of[:, -1]

    @abstractmethod
    def forward(self, t: int) -> None:
        """From the gate sums of second t to h[t+1]; keeps what `backward` needs in `gates`."""

    @abstractmethod
    def backward(self, t: int) -> None:
        """From dh, the slope of h[t+1], to `slopes`; what passes by the gates stays in dh."""


class UnrolledGRU(Unrolled):
    """Sums of the reset and update gates, of the new gate from the state and from the input."""

    blocks = ((0, True, True), (1, True, True), (2, True, False), (2, False, True))
    sigmoids, passes_by = 2, True

    def forward(self, t: int) -> None:
        """h' = n + z·(h - n) with n = tanh(x_n + r·h_n)."""
        reset, update, recurrent, new = self.gates[t]
        self.open[t].sigmoid_()
        new.addcmul_(reset, recurrent).tanh_()
        torch.lerp(new, self.h[t], update, out=self.h[t + 1])

    def backward(self, t: int) -> None:
        """The four slopes; z·dh goes straight to the last state."""
        reset, update, recurrent, new = self.gates[t]
        d_reset, d_update, d_recurrent, d_new = self.slopes
        torch.addcmul(self.dh, self.dh, update, value=-1, out=d_new)
        _tanh_slope(d_new, new, grad_input=d_new)
        torch.mul(d_new, reset, out=d_recurrent)
        torch.mul(d_new, recurrent, out=d_reset)
        torch.sub(self.h[t], new, out=d_update).mul_(self.dh)
        _sigmoid_slope(self.open_slope, self.open[t], grad_input=self.open_slope)
        self.dh.mul_(update)


class UnrolledLSTM(Unrolled):
    """Sums: input, forget and output gates, and the cell's."""

    blocks = ((0, True, True), (1, True, True), (3, True, True), (2, True, True))
    sigmoids, passes_by = 3, False

    def __init__(self, here: Parts, windows: Tensor, there: Parts | None = None) -> None:
        super().__init__(here, windows, there)
        self.c = [torch.zeros_like(self.dh), *self.each_second(self.hidden)]
        self.tanh_c = self.each_second(self.hidden)
        self.dc = torch.empty_like(self.dh)

    def forward(self, t: int) -> None:
        """c' = f·c + i·g, h' = o·tanh(c')."""
        i, f, o, g = self.gates[t]
        self.open[t].sigmoid_()
        g.tanh_()
        torch.mul(f, self.c[t], out=self.c[t + 1]).addcmul_(i, g)
        torch.tanh(self.c[t + 1], out=self.tanh_c[t])
        torch.mul(o, self.tanh_c[t], out=self.h[t + 1])

    def backward(self, t: int) -> None:
        """The four slopes; nothing of dh passes by the gates, but dc goes on to the last second."""
        i, f, o, g = self.gates[t]
        d_i, d_f, d_o, d_g = self.slopes
        if t == self.seconds[-1]:
            self.dc.zero_()
        torch.mul(self.dh, self.tanh_c[t], out=d_o)
        torch.mul(self.dh, o, out=self.scratch)
        _tanh_slope(self.scratch, self.tanh_c[t], grad_input=self.scratch)
        self.dc.add_(self.scratch)
        torch.mul(self.dc, g, out=d_i)
        torch.mul(self.dc, self.c[t], out=d_f)
        torch.mul(self.dc, i, out=d_g)
        _sigmoid_slope(self.open_slope, self.open[t], grad_input=self.open_slope)
        _tanh_slope(d_g, g, grad_input=d_g)
        self.dc.mul_(f)
