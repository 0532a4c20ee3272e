//! A task while it runs: its state, and its output piece by piece.

use crate::answers::Task;
use crate::client::{ClientError, DirectorClient, LONGEST, PIECE};

impl DirectorClient {
    /// The state of a task.
    pub async fn task(&self, task: u64) -> Result<Task, ClientError> {
        self.get(&format!("/tasks/{task}")).await
    }
}

/// One output of a task, and how much of it is read already.
#[derive(Debug)]
pub struct TaskOutput<'a> {
    task: u64,
    kind: &'a str,
    offset: u64,
    is_behind: bool,
}

impl<'a> TaskOutput<'a> {
    /// `kind` is `event`, `result`, `debug` or `cpi`.
    pub fn new(task: u64, kind: &'a str) -> Self {
        Self { task, kind, offset: 0, is_behind: false }
    }

    /// What was written since the last call; empty if there is nothing more yet.
    pub async fn next(&mut self, director: &DirectorClient) -> Result<Vec<u8>, ClientError> {
        let bytes = director.output(self.task, self.kind, self.offset).await?;
        self.offset += bytes.len() as u64;
        self.is_behind = bytes.len() >= PIECE;
        Ok(bytes)
    }

    /// Whether the last call gave only a part of what there was.
    pub fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// All of it, once the task has ended.
    pub async fn rest(&mut self, director: &DirectorClient) -> Result<String, ClientError> {
        let mut text = Vec::new();
        loop {
            let bytes = self.next(director).await?;
            if bytes.is_empty() {
                return Ok(String::from_utf8_lossy(&text).into_owned());
            }
            text.extend(bytes);
            if text.len() > LONGEST {
                return Err(ClientError::TooLong);
            }
        }
    }
}
