"""How loaders and values are called in reports and plots."""

from __future__ import annotations

from measures import OURS, Row

_LABELS = {
    OURS: "this yogadl",
    "yogadl_014": "yogadl 0.1.4",
    "ffcv_loader": "FFCV",
    "tf_record": "tf.data TFRecord",
    "tf_save": "tf.data save",
    "grain_loader": "Grain",
    "litdata_loader": "LitData",
    "mosaic": "Mosaic Streaming",
    "torch_lmdb": "PyTorch, LMDB",
}


def label(row: Row) -> str:
    loader, way = row
    name = _LABELS.get(loader, loader)
    return f"{name} · {way}" if way else name


def number(value: float) -> str:
    """A value in about three digits."""
    if value == 0 or value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 0.001 else f"{value:.1e}"
