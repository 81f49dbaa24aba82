//! Layers of every kind, hostile ones among them.
