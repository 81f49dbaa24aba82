//! Images from local files.
