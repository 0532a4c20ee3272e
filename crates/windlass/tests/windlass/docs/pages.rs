//! The pages, and what stands in them: fenced blocks, words in code, links.

use std::path::{Path, PathBuf};

/// A page in Markdown.
pub(crate) struct Page {
    /// From the repository's root.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) blocks: Vec<Block>,
    /// What stands outside of blocks, with the number of its line.
    prose: Vec<(usize, String)>,
}

/// A fenced block.
pub(crate) struct Block {
    /// The line after its fence.
    pub(crate) line: usize,
    /// What it is written in: `sh` is run, the others are shown.
    pub(crate) language: String,
    /// The file that it is, if the fence names one.
    pub(crate) file: Option<String>,
    pub(crate) text: String,
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// All pages that people read.
pub(crate) fn all() -> Vec<Page> {
    let root = root();
    let at_the_top = ["README.md", "SPECIFICATION.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"];
    let mut paths: Vec<PathBuf> = at_the_top.iter().map(|name| root.join(name)).collect();
    let listed = |folder: PathBuf| std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.extend(listed(root.join("docs")).filter(|path| path.extension().is_some_and(|it| it == "md")));
    paths.extend(listed(root.join("crates")).map(|path| path.join("README.md")).filter(|path| path.exists()));
    paths.sort();
    paths.iter().map(|path| Page::read(&root, path)).collect()
}

impl Page {
    fn read(root: &Path, path: &Path) -> Self {
        let name = path.strip_prefix(root).unwrap().display().to_string();
        let mut page = Self { name, path: path.to_owned(), blocks: Vec::new(), prose: Vec::new() };
        let mut open = false;
        for (index, line) in std::fs::read_to_string(path).unwrap().lines().enumerate() {
            match (line.strip_prefix("```"), open) {
                (Some(fence), false) => {
                    let mut words = fence.split_whitespace();
                    let language = words.next().unwrap_or_default().to_owned();
                    let file = words.next().map(str::to_owned);
                    page.blocks.push(Block { line: index + 2, language, file, text: String::new() });
                    open = true;
                }
                (Some(_), true) => open = false,
                (None, true) => {
                    let block = page.blocks.last_mut().unwrap();
                    block.text.push_str(line);
                    block.text.push('\n');
                }
                (None, false) => page.prose.push((index + 1, line.to_owned())),
            }
        }
        assert!(!open, "{}: a block does not end", page.name);
        page
    }

    /// The blocks in one language.
    pub(crate) fn blocks_in<'a>(&'a self, language: &'a str) -> impl Iterator<Item = &'a Block> {
        self.blocks.iter().filter(move |block| block.language == language)
    }

    /// Where links of the page lead to, without those to other hosts.
    pub(crate) fn links(&self) -> Vec<String> {
        let text: String = self.prose.iter().map(|(_, line)| format!("{line}\n")).collect();
        let links = text.split("](").skip(1).filter_map(|after| after.split_once(')'));
        links.map(|(link, _)| link.to_owned()).filter(|link| !link.contains("://")).collect()
    }

    /// Words in code, also those that go over the end of a line; with the line that they begin in.
    pub(crate) fn code(&self) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        let mut open: Option<(usize, String)> = None;
        let mut before = 0;
        for (number, line) in &self.prose {
            // Code does not go on after an empty line or a block.
            if line.trim().is_empty() || *number != before + 1 {
                open = None;
            }
            before = *number;
            for (index, part) in line.split('`').enumerate() {
                if index > 0 {
                    match open.take() {
                        Some(code) => found.push(code),
                        None => open = Some((*number, String::new())),
                    }
                }
                if let Some((_, code)) = &mut open {
                    if !code.is_empty() && index == 0 {
                        code.push(' ');
                    }
                    code.push_str(part.trim_start_matches(if index == 0 { ' ' } else { '\0' }));
                }
            }
            // A table's row ends what is open in it.
            if line.starts_with('|') {
                open = None;
            }
        }
        found
    }

    /// The names of its headings, as links name them.
    pub(crate) fn anchors(&self) -> Vec<String> {
        let headings = self.prose.iter().filter_map(|(_, line)| line.strip_prefix('#'));
        let anchor = |heading: &str| {
            let words = heading.trim_start_matches('#').trim().to_lowercase();
            let kept = words.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
            kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
        };
        headings.map(anchor).collect()
    }
}
