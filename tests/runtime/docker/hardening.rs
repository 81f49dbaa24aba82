//! What the engine was asked for, as it reports it, and what attacks from inside reach.
