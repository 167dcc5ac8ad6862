"""What a training run did."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import Any

from ..results import Drawn


@dataclass(repr=False)
class History(Drawn, picture="plot_history"):
    """Record of :func:`elman.fit`.

    Attributes
    ----------
    loss : list of float
        Loss of each complete epoch: mean over all targets while the parameters were being updated.
    validation_loss : list of float
        Loss on the validation data after each complete epoch; empty without validation data.
    gradient_norm : list of float
        Euclidean norm of the whole gradient at each update, before clipping.
    clip_norm : float or None
        The norm above which gradients were clipped.
    seconds : float
        Wall-clock time; ignored in comparisons.
    interrupted : bool
        Whether Ctrl-C ended the training.
    stopped : bool
        Whether a callback ended it.
    """

    loss: list[float] = field(default_factory=list)
    validation_loss: list[float] = field(default_factory=list)
    gradient_norm: list[float] = field(default_factory=list)
    clip_norm: float | None = None
    seconds: float = field(default=0.0, compare=False)
    interrupted: bool = False
    stopped: bool = False

    @property
    def epochs(self) -> int:
        """Number of complete epochs."""
        return len(self.loss)

    @property
    def updates(self) -> int:
        """Number of parameter updates, those of an incomplete last epoch included."""
        return len(self.gradient_norm)

    @property
    def clipped_fraction(self) -> float:
        """Share of the updates whose gradient was clipped."""
        if self.clip_norm is None or not self.gradient_norm:
            return 0.0
        return sum(norm > self.clip_norm for norm in self.gradient_norm) / len(self.gradient_norm)

    def __str__(self) -> str:
        pace = f", {1e3 * self.seconds / self.updates:.3g} ms each" if self.updates else ""
        lines = [f"Training: {self.epochs} epochs, {self.updates} updates in {self.seconds:.3g} s{pace}"]
        for name, losses in (("loss", self.loss), ("validation loss", self.validation_loss)):
            if losses:
                best = min(range(len(losses)), key=losses.__getitem__)
                lines.append(
                    f"  {name:<16} {losses[0]:.4g} -> {losses[-1]:.4g}, best {losses[best]:.4g} (epoch {best})"
                )
        if self.gradient_norm:
            clip = "not clipped"
            if self.clip_norm is not None:
                clip = f"clipped to {self.clip_norm:g} in {100 * self.clipped_fraction:.3g} % of the updates"
            lines.append(
                f"  {'gradient norm':<16} median {median(self.gradient_norm):.3g}, "
                f"largest {max(self.gradient_norm):.3g}, {clip}"
            )
        if self.interrupted or self.stopped:
            by = "Ctrl-C" if self.interrupted else "a callback"
            lines.append(f"  ended by {by} after {self.epochs} complete epochs")
        return "\n".join(lines)

    def __repr__(self) -> str:
        last = f", loss={self.loss[-1]:.4g}" if self.loss else ""
        return f"History(epochs={self.epochs}, updates={self.updates}{last})"

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain lists, numbers and booleans.

        Returns
        -------
        dict
            The attributes, and ``epochs``, ``updates``, ``clipped_fraction``.
        """
        return {
            "loss": list(self.loss),
            "validation_loss": list(self.validation_loss),
            "gradient_norm": list(self.gradient_norm),
            "clip_norm": self.clip_norm,
            "seconds": self.seconds,
            "interrupted": self.interrupted,
            "stopped": self.stopped,
            "epochs": self.epochs,
            "updates": self.updates,
            "clipped_fraction": self.clipped_fraction,
        }
