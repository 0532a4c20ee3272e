//! How far a build has come.

use std::cell::{Cell, RefCell};
use std::io::{self, Read};

/// Tells somebody how many bytes were read, and of how many, if that is known.
pub(crate) struct Meter<'a> {
    done: Cell<u64>,
    total: Cell<Option<u64>>,
    report: RefCell<&'a mut dyn FnMut(u64, Option<u64>)>,
}

impl<'a> Meter<'a> {
    pub(crate) fn new(report: &'a mut dyn FnMut(u64, Option<u64>)) -> Self {
        Self { done: Cell::new(0), total: Cell::new(None), report: RefCell::new(report) }
    }

    /// Sets what there is to read in all.
    pub(crate) fn expect(&self, total: u64) {
        self.total.set(Some(total));
    }

    /// Counts what `reader` gives.
    pub(crate) fn read<R: Read>(&self, reader: R) -> Metered<'_, 'a, R> {
        Metered { reader, meter: self }
    }

    fn add(&self, bytes: u64) {
        let done = self.done.get() + bytes;
        self.done.set(done);
        (self.report.borrow_mut())(done, self.total.get());
    }
}

/// A reader that is counted.
pub(crate) struct Metered<'m, 'a, R> {
    reader: R,
    meter: &'m Meter<'a>,
}

impl<R: Read> Read for Metered<'_, '_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        if read > 0 {
            self.meter.add(read as u64);
        }
        Ok(read)
    }
}
