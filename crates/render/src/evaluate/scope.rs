//! Local variables, and blocks that keep them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use crate::memory::Kept;
use crate::pattern::Captures;
use crate::tree::{Block, Parameter, Parameters, Slot};
use crate::value::Value;

/// The local variables of a program, a method's call or a block's.
#[derive(Debug)]
pub(crate) struct Scope {
    pub(crate) slots: RefCell<Vec<Value>>,
    pub(crate) parent: Option<Rc<Scope>>,
    /// Whether a block keeps it.
    pub(crate) captured: Cell<bool>,
    pub(super) place: Place,
    /// What `break` and `return` look for.
    pub(super) tag: u64,
    /// The block that a method was called with.
    pub(super) block: Option<Rc<Closure>>,
    /// Of a program or a method's call; blocks have that of what is around them.
    last_match: RefCell<LastMatch>,
}

/// What a regular expression found last: `$~`.
#[derive(Debug, Clone, Default)]
pub(crate) enum LastMatch {
    #[default]
    Nothing,
    Found(Kept<Captures>),
    /// Ruby knows.
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Top,
    Block,
    Lambda,
    Method,
}

impl Scope {
    pub(super) fn top(slots: usize) -> Rc<Self> {
        Self::new(slots, None, Place::Top, 0, None)
    }

    pub(super) fn new(
        slots: usize,
        parent: Option<Rc<Scope>>,
        place: Place,
        tag: u64,
        block: Option<Rc<Closure>>,
    ) -> Rc<Self> {
        let slots = RefCell::new(vec![Value::Nil; slots]);
        Rc::new(Self { slots, parent, captured: Cell::new(false), place, tag, block, last_match: RefCell::default() })
    }

    pub(super) fn get(&self, slot: Slot) -> Value {
        match (slot.up, &self.parent) {
            (0, _) => self.slots.borrow().get(slot.index).cloned().unwrap_or(Value::Nil),
            (up, Some(parent)) => parent.get(Slot { up: up - 1, ..slot }),
            (_, None) => Value::Nil,
        }
    }

    pub(super) fn set(&self, slot: Slot, value: Value) {
        match (slot.up, &self.parent) {
            (0, _) => {
                if let Some(place) = self.slots.borrow_mut().get_mut(slot.index) {
                    *place = value;
                }
            }
            (up, Some(parent)) => parent.set(Slot { up: up - 1, ..slot }, value),
            (_, None) => {}
        }
    }

    /// The scope that `return` leaves.
    pub(super) fn home(&self) -> u64 {
        match (self.place, &self.parent) {
            (Place::Block, Some(parent)) => parent.home(),
            _ => self.tag,
        }
    }

    pub(crate) fn last_match(&self) -> LastMatch {
        match (self.place, &self.parent) {
            (Place::Block | Place::Lambda, Some(parent)) => parent.last_match(),
            _ => self.last_match.borrow().clone(),
        }
    }

    pub(crate) fn remember(&self, found: LastMatch) {
        match (self.place, &self.parent) {
            (Place::Block | Place::Lambda, Some(parent)) => parent.remember(found),
            _ => drop(self.last_match.replace(found)),
        }
    }

    /// The block of the method that this is in.
    pub(crate) fn given_block(&self) -> Option<Rc<Closure>> {
        match (self.place, &self.parent) {
            (Place::Block | Place::Lambda, Some(parent)) => parent.given_block(),
            _ => self.block.clone(),
        }
    }
}

/// What can be called like a block.
#[derive(Debug)]
pub(crate) enum Closure {
    Block {
        block: Arc<Block>,
        scope: Rc<Scope>,
        is_lambda: bool,
        tag: u64,
    },
    /// `&:name`
    Name(Arc<str>),
}

impl Closure {
    /// Whether two values and an array of them are the same to it.
    pub(crate) fn takes_pairs_apart(&self) -> bool {
        let Self::Block { block, .. } = self else { return false };
        let Parameters { required, optional, rest, last, single, .. } = &block.parameters;
        match required.len() + optional.len() + last.len() {
            0 => false,
            1 => matches!(required.as_slice(), [Parameter::Plain(_)]) && (rest.is_some() || !single),
            _ => true,
        }
    }
}
