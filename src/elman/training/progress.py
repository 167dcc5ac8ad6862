"""The bar over the epochs."""

from __future__ import annotations

from typing import Any

from .history import History


class Bar:
    """What a terminal or notebook shows: epochs done and time left, losses, gradient norm, share of clipped updates."""

    def __init__(self, done: int, epochs: int) -> None:
        from tqdm.auto import tqdm

        self._bar: Any = tqdm(total=epochs, initial=done, unit="epoch", desc="fit")
        self._updates = 0

    def show(self, history: History) -> None:
        """Show the epoch that has ended."""
        shown = {"loss": f"{history.loss[-1]:.4g}"}
        if history.validation_loss:
            shown["validation"] = f"{history.validation_loss[-1]:.4g}"
        norms = history.gradient_norm[self._updates :] or history.gradient_norm[-1:]
        shown["gradient"] = f"{sum(norms) / len(norms):.3g}"
        if history.clip_norm is not None:
            shown["clipped"] = f"{100 * sum(norm > history.clip_norm for norm in norms) / len(norms):.0f}%"
        shown |= {name: f"{values[-1]:.4g}" for name, values in history.metrics.items() if values}
        self._updates = history.updates
        self._bar.set_postfix(shown, refresh=False)
        self._bar.update()

    def close(self) -> None:
        """Leave it as it is."""
        self._bar.close()
