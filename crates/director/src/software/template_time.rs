//! How long the templates of a plan may take in sum. Each has limits of its own, and so has each job; a plan has thousands of instances.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time that templates take.
#[derive(Debug)]
pub(super) struct TemplateTime {
    most: Duration,
    spent: Mutex<Spent>,
}

#[derive(Debug, Default)]
struct Spent {
    time: Duration,
    instances: usize,
}

impl Default for TemplateTime {
    fn default() -> Self {
        Self::of(Duration::MAX)
    }
}

impl TemplateTime {
    pub(super) fn of(most: Duration) -> Self {
        Self { most, spent: Mutex::default() }
    }

    pub(super) fn spend<T>(&self, work: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let done = work();
        self.spent.lock().unwrap_or_else(PoisonError::into_inner).time += begun.elapsed();
        done
    }

    /// One more instance is rendered.
    pub(super) fn rendered(&self) {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner).instances += 1;
    }

    /// Why nothing more is rendered.
    pub(super) fn is_over(&self) -> Option<String> {
        let spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        (spent.time > self.most).then(|| {
            format!(
                "the templates of this plan took more than {} s, and {} instances were rendered by then; look for a template that \
                 takes long, deploy in smaller parts, or raise 'template_time' in director.yml",
                self.most.as_secs_f32(),
                spent.instances
            )
        })
    }
}
