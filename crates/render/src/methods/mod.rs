//! What the methods of each class do. A method, a receiver or an argument that is not here needs Ruby.
//!
//! Each file has the names that it knows in `NAMES`; together they are what [`check`](crate::check) takes.

pub(crate) mod array_changes;
pub(crate) mod arrays;
pub(crate) mod classes;
pub(crate) mod common;
pub(crate) mod compare;
pub(crate) mod enumerable;
pub(crate) mod enumerators;
pub(crate) mod format;
pub(crate) mod json;
pub(crate) mod kernel;
pub(crate) mod libraries;
pub(crate) mod maps;
pub(crate) mod numbers;
pub(crate) mod objects;
pub(crate) mod ranges;
pub(crate) mod show;
pub(crate) mod text;
pub(crate) mod text_changes;
pub(crate) mod text_patterns;
pub(crate) mod yaml;

/// All names of methods.
pub(crate) fn is_known(name: &str) -> bool {
    names().any(|known| known == name)
}

/// Several classes may have the same.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    let lists = [
        array_changes::NAMES,
        arrays::NAMES,
        classes::NAMES,
        common::NAMES,
        enumerable::NAMES,
        enumerators::NAMES,
        libraries::NAMES,
        maps::NAMES,
        numbers::NAMES,
        objects::NAMES,
        ranges::NAMES,
        text::NAMES,
        text_changes::NAMES,
        text_patterns::NAMES,
    ];
    lists.into_iter().flatten().copied()
}
