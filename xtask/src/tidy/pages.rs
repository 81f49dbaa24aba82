//! The built pages of the server are those of their sources: `cargo xtask web` has written the hashes of
//! both.

use super::{Finding, Tree};
use crate::web::{File, HASHES, PAGES, SOURCES, hashes};

/// Compares the hashes with the files.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let files = |prefix: &str| -> Vec<File> {
        let below = tree.files.iter().filter(|file| file.path.starts_with(prefix));
        let below = below.filter(|file| file.path != HASHES);
        below.map(|file| (file.path.clone(), file.text.clone().into_bytes())).collect()
    };
    let (sources, pages) = (files(SOURCES), files(PAGES));
    if sources.is_empty() && pages.is_empty() {
        return Vec::new();
    }
    let recorded = tree.file(HASHES).map_or("", |file| file.text.as_str());
    if recorded == hashes(&sources, &pages) {
        return Vec::new();
    }
    vec![format!("{PAGES}: the pages are not those of {SOURCES}: cargo xtask web")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_source_or_page_is_found() {
        let source = ("web/src/main.js", "a");
        let page = ("crates/server/pages/app.js", "b");
        let own = |(path, text): (&str, &str)| (path.to_owned(), text.as_bytes().to_vec());
        let recorded = hashes(&[own(source)], &[own(page)]);
        let check = |source, page| check(&Tree::of(&[source, page, (HASHES, &recorded)]));
        assert_eq!(check(source, page), Vec::<String>::new());
        assert_eq!(check((source.0, "c"), page).len(), 1);
        assert_eq!(check(source, (page.0, "c")).len(), 1);
        assert_eq!(check(source, ("crates/server/pages/other.js", "b")).len(), 1);
    }
}
