//! The config server that a director has itself: values are in its database, encrypted.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use async_trait::async_trait;
use serde_json::Value;
use windlass_pki::generate::{GenerateError, generate};
use windlass_variables::{Cipher, ConfigServer, Generation, Mode, ServerError, Unsealed, Version};

use crate::store::{SealedValue, Store, StoreError};

/// How many bytes a value may have as JSON: some keys and certificates with their chains.
const LARGEST_VALUE: usize = 256 << 10;
/// How many bytes of versions an answer has, as they are kept.
const MOST_LISTED: i64 = 4 << 20;

/// Values in the director's database.
#[derive(Debug)]
pub(crate) struct Embedded {
    store: Store,
    cipher: Arc<Cipher>,
    /// Held while a variable gets its value, so that two deploys make it once.
    turns: Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>,
    /// Held while one is made: keys take a second of a processor each, and a manifest may define thousands.
    making: tokio::sync::Mutex<()>,
}

/// Whether a version was there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Known,
    Made,
}

fn unreachable(name: &str) -> impl Fn(StoreError) -> ServerError {
    move |error| ServerError::Unreachable { name: name.to_owned(), source: error.into() }
}

/// Why a value is not kept.
enum NotAdded {
    Store(StoreError),
    Sealing(Unsealed),
}

impl From<StoreError> for NotAdded {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Embedded {
    pub(crate) fn new(store: Store, cipher: Arc<Cipher>) -> Self {
        Self { store, cipher, turns: Mutex::default(), making: tokio::sync::Mutex::default() }
    }

    fn opened(&self, sealed: SealedValue) -> Result<Version, ServerError> {
        let SealedValue { id, name, value, .. } = sealed;
        let id = id.to_string();
        let damaged = |source| ServerError::Damaged { name: name.clone(), source };
        let plain = self.cipher.open(&[&id, &name], &value).map_err(damaged)?;
        let value = serde_json::from_slice(&plain).map_err(|_| damaged(Unsealed))?;
        Ok(Version { id, name, value })
    }

    /// All versions, newest first, unless they are too much for one answer.
    pub(crate) async fn versions(&self, name: &str) -> Result<Vec<Version>, ServerError> {
        let length = self.store.length_of_values(name).await.map_err(unreachable(name))?;
        if length > MOST_LISTED {
            let reason = format!(
                "its versions have {length} bytes together, and an answer may have {MOST_LISTED}; ask with current=true, or for one \
                 version by its id"
            );
            return Err(ServerError::Refused { name: name.to_owned(), reason });
        }
        let sealed = self.store.values_named(name).await.map_err(unreachable(name))?;
        sealed.into_iter().map(|sealed| self.opened(sealed)).collect()
    }

    pub(crate) async fn by_id(&self, id: &str) -> Result<Option<Version>, ServerError> {
        let Ok(number) = id.parse() else { return Ok(None) };
        let sealed = self.store.value(number).await.map_err(unreachable(id))?;
        sealed.map(|sealed| self.opened(sealed)).transpose()
    }

    pub(crate) async fn names(&self) -> Result<Vec<String>, ServerError> {
        self.store.names_of_values().await.map_err(unreachable(""))
    }

    /// Adds a version that somebody has.
    pub(crate) async fn set(&self, name: &str, value: Value) -> Result<Version, ServerError> {
        let length = value.to_string().len();
        if length > LARGEST_VALUE {
            let reason = format!("the value has {length} bytes as JSON; {LARGEST_VALUE} are the most");
            return Err(ServerError::Refused { name: name.to_owned(), reason });
        }
        let turn = self.turn(name);
        let _turn = turn.lock().await;
        self.add(name, value, None).await
    }

    /// Whether there was any version.
    pub(crate) async fn remove(&self, name: &str) -> Result<bool, ServerError> {
        let turn = self.turn(name);
        let _turn = turn.lock().await;
        Ok(self.store.remove_values(name).await.map_err(unreachable(name))? > 0)
    }

    async fn add(&self, name: &str, value: Value, recipe: Option<&str>) -> Result<Version, ServerError> {
        let seal = |id: i64| {
            let sealed = self.cipher.seal(&[&id.to_string(), name], value.to_string().as_bytes());
            sealed.map_err(NotAdded::Sealing)
        };
        windlass_durable::kill_point("before a value of a variable is kept");
        let id = self.store.add_value(name, recipe, seal).await.map_err(|error| match error {
            NotAdded::Store(error) => unreachable(name)(error),
            NotAdded::Sealing(source) => ServerError::Damaged { name: name.to_owned(), source },
        })?;
        windlass_durable::kill_point("after a value of a variable is kept");
        Ok(Version { id: id.to_string(), name: name.to_owned(), value })
    }

    fn turn(&self, name: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, turn| turn.strong_count() > 0);
        if let Some(turn) = turns.get(name).and_then(Weak::upgrade) {
            return turn;
        }
        let turn = Arc::default();
        turns.insert(name.to_owned(), Arc::downgrade(&turn));
        turn
    }

    /// The version that is there, or a new one where the request asks for it.
    pub(crate) async fn obtain(&self, request: &Generation) -> Result<(Version, Outcome), ServerError> {
        let name = &request.name;
        let turn = self.turn(name);
        let _turn = turn.lock().await;
        let ca = match request.ca() {
            Some(ca) => self.current(ca).await?,
            None => None,
        };
        let recipe = self.cipher.digest(request.recipe(ca.as_ref().map(|ca| ca.id.as_str())).as_bytes());
        if let Some(known) = self.store.current_value(name).await.map_err(unreachable(name))? {
            // What somebody set was made from nothing that could have changed.
            let is_stale = known.recipe.as_ref().is_some_and(|known| *known != recipe);
            let is_kept = match request.mode {
                Mode::NoOverwrite => true,
                Mode::Converge => !is_stale,
                Mode::Overwrite => false,
            };
            if is_kept {
                return Ok((self.opened(known)?, Outcome::Known));
            }
        }
        let making = self.making.lock().await;
        let value = make(request.clone(), ca).await?;
        drop(making);
        Ok((self.add(name, value, Some(&recipe)).await?, Outcome::Made))
    }
}

/// Keys take a while, so requests are served beside it.
async fn make(request: Generation, ca: Option<Version>) -> Result<Value, ServerError> {
    let name = request.name.clone();
    let made = tokio::task::spawn_blocking(move || {
        let mut lookup = |wanted: &str| Ok(ca.as_ref().filter(|ca| ca.name == wanted).map(|ca| ca.value.clone()));
        generate(&request.kind, &request.parameters, &mut lookup)
    });
    let made = made.await.map_err(|error| ServerError::Unreachable { name: name.clone(), source: error.into() })?;
    made.map_err(|source: GenerateError| ServerError::Generate { name, source: Box::new(source) })
}

#[async_trait]
impl ConfigServer for Embedded {
    async fn current(&self, name: &str) -> Result<Option<Version>, ServerError> {
        let sealed = self.store.current_value(name).await.map_err(unreachable(name))?;
        sealed.map(|sealed| self.opened(sealed)).transpose()
    }

    async fn version(&self, name: &str, id: &str) -> Result<Option<Version>, ServerError> {
        Ok(self.by_id(id).await?.filter(|version| version.name == name))
    }

    async fn generate(&self, request: &Generation) -> Result<Version, ServerError> {
        self.obtain(request).await.map(|(version, _)| version)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use windlass_variables::Key;

    use super::*;
    use crate::testing::TestDirector;

    async fn server() -> (Arc<Embedded>, TestDirector) {
        let test = TestDirector::new().await;
        let cipher = Arc::new(Cipher::new(&Key::random().unwrap()));
        (Arc::new(Embedded::new(test.director.store.clone(), cipher)), test)
    }

    fn request(name: &str, kind: &str, parameters: Value, mode: Mode) -> Generation {
        Generation { name: name.to_owned(), kind: kind.to_owned(), parameters, mode }
    }

    #[tokio::test]
    async fn a_value_is_made_once_and_kept_encrypted_when_several_ask_at_once() {
        let (server, test) = server().await;
        let asking = (0..8).map(|_| {
            let server = server.clone();
            tokio::spawn(async move {
                server.generate(&request("/d/s/p", "password", Value::Null, Mode::NoOverwrite)).await.unwrap()
            })
        });
        let mut answers = Vec::new();
        for asked in asking.collect::<Vec<_>>() {
            answers.push(asked.await.unwrap());
        }
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
        let kept = test.director.store.values_named("/d/s/p").await.unwrap();
        assert_eq!(kept.len(), 1);
        assert!(!kept[0].value.contains(answers[0].value.as_str().unwrap()));
        assert_eq!(server.version("/d/s/p", &answers[0].id).await.unwrap().unwrap(), answers[0]);
        assert_eq!(server.version("/other", &answers[0].id).await.unwrap(), None, "an id of another name");
    }

    /// A key takes a second of a processor, and a manifest may define thousands.
    #[tokio::test]
    async fn values_are_made_one_at_a_time_and_what_is_there_waits_for_none() {
        let (server, _test) = server().await;
        let ask = async |name: &str| {
            let wanted = request(name, "password", Value::Null, Mode::NoOverwrite);
            tokio::time::timeout(std::time::Duration::from_millis(100), server.generate(&wanted)).await
        };
        let known = ask("/known").await.unwrap().unwrap();
        let making = server.making.lock().await;
        assert!(ask("/a").await.is_err() && ask("/b").await.is_err());
        assert_eq!(ask("/known").await.unwrap().unwrap(), known);
        drop(making);
        server.generate(&request("/a", "password", Value::Null, Mode::NoOverwrite)).await.unwrap();
    }

    /// Eighty megabytes of versions took a gigabyte, and everybody's time.
    #[tokio::test]
    async fn large_values_and_very_many_versions_are_refused() {
        let (server, _test) = server().await;
        let told = server.set("/x", json!("x".repeat(LARGEST_VALUE))).await.unwrap_err().to_string();
        assert!(told.contains("are the most"), "{told}");
        let large = "x".repeat(LARGEST_VALUE - 2);
        for number in 0..20 {
            server.set("/x", json!(large)).await.unwrap();
            let listed = server.versions("/x").await;
            let told = listed.map(|versions| versions.len()).map_err(|error| error.to_string());
            match number {
                0..5 => assert_eq!(told, Ok(number + 1)),
                19 => assert!(told.as_ref().is_err_and(|told| told.contains("current=true")), "{told:?}"),
                _ => {}
            }
        }
        assert_eq!(server.current("/x").await.unwrap().unwrap().value, json!(large));
    }

    #[tokio::test]
    async fn converging_makes_a_new_value_when_options_or_the_ca_change_and_never_of_what_somebody_set() {
        let (server, _test) = server().await;
        let make = async |name: &str, parameters: Value, mode| {
            server.obtain(&request(name, "certificate", parameters, mode)).await.unwrap()
        };
        let ca = json!({"is_ca": true, "common_name": "ca", "key_length": 2048});
        let leaf = json!({"ca": "/ca", "common_name": "a", "key_length": 2048});
        let other_leaf = json!({"ca": "/ca", "common_name": "b", "key_length": 2048});
        make("/ca", ca.clone(), Mode::Converge).await;
        let (first, outcome) = make("/leaf", leaf.clone(), Mode::Converge).await;
        assert_eq!(outcome, Outcome::Made);
        assert_eq!(make("/leaf", leaf.clone(), Mode::Converge).await, (first.clone(), Outcome::Known));
        assert_eq!(make("/leaf", other_leaf.clone(), Mode::NoOverwrite).await.1, Outcome::Known);
        let (second, outcome) = make("/leaf", other_leaf.clone(), Mode::Converge).await;
        assert_eq!(outcome, Outcome::Made);
        assert_ne!(second.id, first.id);
        let other_ca = json!({"is_ca": true, "common_name": "other", "key_length": 2048});
        let (ca, _) = make("/ca", other_ca, Mode::Converge).await;
        let (third, outcome) = make("/leaf", other_leaf, Mode::Converge).await;
        assert_eq!((outcome, &third.value["ca"]), (Outcome::Made, &ca.value["certificate"]));
        server.set("/leaf", json!({"certificate": "mine"})).await.unwrap();
        let (kept, outcome) = make("/leaf", leaf, Mode::Converge).await;
        assert_eq!((outcome, &kept.value["certificate"]), (Outcome::Known, &json!("mine")));
        assert_eq!(server.version("/leaf", &first.id).await.unwrap().unwrap().value, first.value, "old versions stay");
    }

    #[tokio::test]
    async fn a_value_that_somebody_moved_to_another_name_is_refused() {
        let (server, test) = server().await;
        server.set("/a", json!("secret")).await.unwrap();
        test.director.store.tamper("UPDATE variable_values SET name = '/b'").await;
        let refused = server.current("/b").await.unwrap_err();
        assert!(matches!(refused, ServerError::Damaged { .. }), "{refused}");
    }
}
