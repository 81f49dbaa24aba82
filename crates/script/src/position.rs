//! Positions in a file: conversion of byte offsets to lines and columns, and of generated code to
//! the user's source.

use oxc_codegen::CodegenReturn;

/// The line and the column in UTF-16 units, both from 1, of a byte offset.
pub(crate) fn line_and_column(text: &str, offset: u32) -> (u32, u32) {
    let before = text.get(..offset as usize).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let line = before.bytes().filter(|byte| *byte == b'\n').count();
    let column = before[line_start..].encode_utf16().count();
    (count(line), count(column))
}

/// From 0-based to 1-based; payloads are far smaller than the maximum.
fn count(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX - 1) + 1
}

/// The source map: the origin of each piece of generated code, in the order of the generated code.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct SourceMap {
    /// Generated line and column, source line and column; from 0.
    pieces: Vec<[u32; 4]>,
}

impl SourceMap {
    pub(crate) fn of(generated: &CodegenReturn<'_>) -> Self {
        let Some(map) = &generated.map else { return Self::default() };
        let piece = |token: oxc_sourcemap::Token| {
            [token.get_dst_line(), token.get_dst_col(), token.get_src_line(), token.get_src_col()]
        };
        Self { pieces: map.get_tokens().map(piece).collect() }
    }

    /// The source position for a position in the generated code; both count from 1. A position
    /// before all source code is the first line; code without a source keeps its own position.
    pub(crate) fn source_position(&self, line: u32, column: u32) -> (u32, u32) {
        if self.pieces.is_empty() {
            return (line, column);
        }
        let wanted = [line.saturating_sub(1), column.saturating_sub(1)];
        let after = self.pieces.partition_point(|[line, column, ..]| [*line, *column] <= wanted);
        match after.checked_sub(1).and_then(|at| self.pieces.get(at)) {
            Some([.., line, column]) => (line + 1, column + 1),
            None => (1, 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_utf_16() {
        let text = "a\n\u{1F600}é b\r\nc";
        let at = |needle: &str| {
            line_and_column(text, u32::try_from(text.find(needle).unwrap()).unwrap())
        };
        assert_eq!(at("a"), (1, 1));
        assert_eq!(at("b"), (2, 5));
        assert_eq!(at("c"), (3, 1));
        assert_eq!(line_and_column(text, 999), (3, 2));
    }

    #[test]
    fn a_place_belongs_to_the_piece_before_it() {
        let map = SourceMap { pieces: vec![[0, 0, 4, 2], [0, 10, 4, 20], [1, 0, 6, 0]] };
        assert_eq!(map.source_position(1, 1), (5, 3));
        assert_eq!(map.source_position(1, 15), (5, 21));
        assert_eq!(map.source_position(2, 4), (7, 1));
        assert_eq!(SourceMap::default().source_position(9, 9), (9, 9));
    }
}
