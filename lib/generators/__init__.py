"""Problems and their splits, as pure functions of a configuration and a `torch.Generator`."""
