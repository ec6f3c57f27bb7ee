"""Problems and their splits, as pure functions of a configuration and a `torch.Generator`."""

import zlib

import numpy as np
import torch


def stream(seed: int, name: str, step: int = 0) -> torch.Generator:
    """An independent CPU generator for each (seed, name, step)."""
    entropy = np.random.SeedSequence([seed, zlib.crc32(name.encode()), step])
    return torch.Generator().manual_seed(int(entropy.generate_state(1)[0]))
