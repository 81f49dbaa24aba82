"""The asynchronous client. `cargo xtask sdk` makes the synchronous one, `_sync`, from these files."""
