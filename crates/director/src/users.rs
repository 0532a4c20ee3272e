//! Who may use the director, and for what.

use std::collections::BTreeSet;
use std::sync::Arc;

use subtle::{Choice, ConstantTimeEq};
use windlass_contract::Secret;

/// The user of what the director does by itself.
pub(crate) const DIRECTOR: &str = "_director";
/// The user of what is done because VMs do not answer.
pub(crate) const RESURRECTOR: &str = "resurrector";
/// Users who are nobody: what they do, nobody asked for.
pub(crate) const NOBODY: [&str; 2] = [DIRECTOR, RESURRECTOR];

/// A user and password.
#[derive(Debug, Clone)]
pub struct Credentials {
    pub user: String,
    pub password: Secret,
}

/// What a user may do, in the words of BOSH: `bosh.admin`, `bosh.teams.shop.read`, …
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scopes(Vec<String>);

impl Scopes {
    pub fn admin() -> Self {
        Self(vec!["bosh.admin".to_owned()])
    }

    /// Look at everything but logs.
    pub fn read_only() -> Self {
        Self(vec!["bosh.read".to_owned()])
    }

    /// Those of a user, each of which must be known here.
    pub fn parse<'w>(words: impl IntoIterator<Item = &'w str>) -> Result<Self, UnknownScope> {
        let known = |word: &str| if is_known(word) { Ok(word.to_owned()) } else { Err(UnknownScope(word.to_owned())) };
        words.into_iter().map(known).collect::<Result<_, _>>().map(Self)
    }

    pub(crate) fn has(&self, scope: &str) -> bool {
        self.0.iter().any(|known| known == scope)
    }

    /// The first team that a user is an admin of, who is no admin of the director.
    fn only_team(&self, director: &str) -> Option<&str> {
        self.teams("admin").next().filter(|_| !self.is_admin(director))
    }

    /// Whether they are those of an admin of the director with this uuid.
    fn is_admin(&self, director: &str) -> bool {
        admins_of(director).iter().any(|scope| self.has(scope))
    }

    /// The teams for which a user may do something (`admin` or `read`), in the order of `director.yml`.
    pub(crate) fn teams(&self, access: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(move |scope| team_scope(scope).filter(|(_, of)| *of == access).map(|(team, _)| team))
    }
}

/// The scopes of admins of the director with this uuid. Those of other directors count for nothing.
pub(crate) fn admins_of(director: &str) -> Vec<String> {
    vec!["bosh.admin".to_owned(), format!("bosh.{director}.admin")]
}

/// a scope that means nothing here
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected bosh.admin, bosh.read, bosh.teams.TEAM.admin, bosh.teams.TEAM.read, bosh.stemcells.upload, bosh.releases.upload or config_server.admin, found '{0}'"
)]
pub struct UnknownScope(String);

/// The team and what may be done for it.
fn team_scope(scope: &str) -> Option<(&str, &str)> {
    let (team, access) = scope.strip_prefix("bosh.teams.")?.split_once('.')?;
    Some((team, access)).filter(|_| !team.is_empty() && !access.contains('.'))
}

fn is_known(scope: &str) -> bool {
    let of_this_director = || {
        let (uuid, access) = scope.strip_prefix("bosh.")?.split_once('.')?;
        (uuid::Uuid::try_parse(uuid).is_ok() && matches!(access, "admin" | "read")).then_some(())
    };
    matches!(
        scope,
        "bosh.admin" | "bosh.read" | "bosh.stemcells.upload" | "bosh.releases.upload" | "config_server.admin"
    ) || team_scope(scope).is_some_and(|(_, access)| matches!(access, "admin" | "read"))
        || of_this_director().is_some()
}

/// Somebody who may use the director.
#[derive(Debug, Clone)]
pub struct Account {
    pub credentials: Credentials,
    pub scopes: Arc<Scopes>,
}

/// Everybody who may use the director.
#[derive(Debug, Clone)]
pub(crate) struct Users {
    /// The director's uuid, which scopes may name.
    director: String,
    admin: Account,
    others: Vec<Account>,
}

impl Users {
    /// The admin whose credentials `env.sh` has, and others.
    pub(crate) fn new(director: &str, admin: Credentials, others: Vec<Account>) -> Self {
        let admin = Account { credentials: admin, scopes: Arc::new(Scopes::admin()) };
        Self { director: director.to_owned(), admin, others }
    }

    /// Whose credentials `env.sh` has.
    pub(crate) fn admin(&self) -> &Credentials {
        &self.admin.credentials
    }

    /// Everybody who may do everything.
    pub(crate) fn admins(&self) -> Vec<&str> {
        let all = std::iter::once(&self.admin).chain(&self.others);
        let is_admin = |account: &&Account| account.scopes.is_admin(&self.director);
        all.filter(is_admin).map(|account| account.credentials.user.as_str()).collect()
    }

    /// Those who count as one with a user where places are shared out: the admins of the same team, unless they may do everything.
    pub(crate) fn colleagues<'u>(&'u self, name: &'u str) -> BTreeSet<&'u str> {
        let all = || std::iter::once(&self.admin).chain(&self.others);
        let only_team = |account: &'u Account| account.scopes.only_team(&self.director);
        let team = all().find(|account| account.credentials.user == name).and_then(only_team);
        let is_of_it = |account: &&'u Account| team.is_some() && only_team(account) == team;
        all().filter(is_of_it).map(|account| account.credentials.user.as_str()).chain([name]).collect()
    }

    /// The name under which a user and their colleagues are counted.
    pub(crate) fn party<'u>(&'u self, name: &'u str) -> &'u str {
        self.colleagues(name).first().copied().unwrap_or(name)
    }

    /// What a user may do who shows this name and password; none if they are wrong.
    pub(crate) fn scopes_of(&self, name: &str, password: &str) -> Option<&Arc<Scopes>> {
        if name.is_empty() || password.is_empty() {
            return None;
        }
        // All are compared, each in constant time, so that an answer's delay says nothing about any of them.
        let mut found = None;
        for Account { credentials: known, scopes } in std::iter::once(&self.admin).chain(&self.others) {
            let right: Choice = name.as_bytes().ct_eq(known.user.as_bytes())
                & password.as_bytes().ct_eq(known.password.reveal().as_bytes());
            if bool::from(right) {
                found = found.or(Some(scopes));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_right_password_of_a_user_gives_the_users_scopes() {
        let credentials =
            |user: &str, password: &str| Credentials { user: user.into(), password: Secret::new(password.to_owned()) };
        let reader = Account { credentials: credentials("reader", "r"), scopes: Arc::new(Scopes::read_only()) };
        let nobody = Account { credentials: credentials("nobody", ""), scopes: Arc::new(Scopes::admin()) };
        let users = Users::new("uuid", credentials("admin", "a"), vec![reader, nobody]);
        assert_eq!(**users.scopes_of("admin", "a").unwrap(), Scopes::admin());
        assert_eq!(**users.scopes_of("reader", "r").unwrap(), Scopes::read_only());
        for (name, password) in [("admin", "r"), ("reader", "a"), ("nobody", ""), ("", ""), ("", "a"), ("admin", "")] {
            assert_eq!(users.scopes_of(name, password), None, "{name}");
        }
    }

    #[test]
    fn admins_of_a_team_are_colleagues_and_admins_of_the_director_are_nobodys() {
        let account = |user: &str, scopes: &[&str]| Account {
            credentials: Credentials { user: user.into(), password: Secret::new("p") },
            scopes: Arc::new(Scopes::parse(scopes.iter().copied()).unwrap()),
        };
        let admin = Credentials { user: "admin".into(), password: Secret::new("p") };
        let here = "7f1d5b0e-5c0a-4d0e-9f4e-0d9d4a5f6a11";
        let others = vec![
            account("a", &["bosh.teams.shop.admin"]),
            account("b", &["bosh.releases.upload", "bosh.teams.shop.admin", "bosh.teams.bank.admin"]),
            account("c", &["bosh.teams.bank.admin"]),
            account("both", &["bosh.teams.shop.admin", "bosh.admin"]),
            account("here", &["bosh.teams.shop.admin", "bosh.7f1d5b0e-5c0a-4d0e-9f4e-0d9d4a5f6a11.admin"]),
            // Who is an admin of another director had no limits of a team here.
            account("elsewhere", &["bosh.teams.shop.admin", "bosh.0b1d5b0e-5c0a-4d0e-9f4e-0d9d4a5f6a11.admin"]),
            account("reader", &["bosh.teams.shop.read"]),
        ];
        let users = Users::new(here, admin, others);
        let colleagues = |name: &str| users.colleagues(name).into_iter().collect::<Vec<_>>().join(" ");
        for (name, expected) in
            [("a", "a b elsewhere"), ("elsewhere", "a b elsewhere"), ("c", "c"), ("both", "both"), ("here", "here")]
        {
            assert_eq!(colleagues(name), expected);
        }
        for name in ["reader", "admin", "_director"] {
            assert_eq!((colleagues(name).as_str(), users.party(name)), (name, name));
        }
        assert_eq!(users.admins(), ["admin", "both", "here"]);
        assert_eq!((users.party("a"), users.party("b"), users.party("c")), ("a", "a", "c"));
    }

    #[test]
    fn scopes_that_mean_nothing_are_refused() {
        let known = [
            "bosh.admin",
            "bosh.read",
            "bosh.teams.a-b_c.admin",
            "bosh.teams.a.read",
            "bosh.stemcells.upload",
            "bosh.releases.upload",
            "bosh.7f1d5b0e-5c0a-4d0e-9f4e-0d9d4a5f6a11.admin",
        ];
        let scopes = Scopes::parse(known).unwrap();
        assert_eq!(scopes.teams("admin").collect::<Vec<_>>(), ["a-b_c"]);
        assert_eq!(scopes.teams("read").collect::<Vec<_>>(), ["a"]);
        for odd in [
            "",
            "admin",
            "bosh.king",
            "bosh.teams.a.king",
            "bosh.teams..admin",
            "bosh.teams.a.b.admin",
            "bosh.x.admin",
            "team.a.admin",
            "bosh.dynamic-disks.create",
        ] {
            assert_eq!(Scopes::parse([odd]), Err(UnknownScope(odd.to_owned())), "{odd}");
        }
    }
}
