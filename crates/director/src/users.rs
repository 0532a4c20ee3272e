//! Who may use the director, and for what.

use subtle::{Choice, ConstantTimeEq};
use windlass_contract::Secret;

/// A user and password.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// User.
    pub user: String,
    /// Password.
    pub password: Secret,
}

/// What a user may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Look at everything but logs.
    ReadOnly,
    /// Everything.
    Admin,
}

/// Somebody who may use the director.
#[derive(Debug, Clone)]
pub struct Account {
    /// Who.
    pub credentials: Credentials,
    /// For what.
    pub role: Role,
}

/// Everybody who may use the director.
#[derive(Debug, Clone)]
pub(crate) struct Users {
    admin: Credentials,
    others: Vec<Account>,
}

impl Users {
    /// The admin whose credentials `env.sh` has, and others.
    pub(crate) fn new(admin: Credentials, others: Vec<Account>) -> Self {
        Self { admin, others }
    }

    /// Whose credentials `env.sh` has.
    pub(crate) fn admin(&self) -> &Credentials {
        &self.admin
    }

    /// What a user may do who shows this name and password; nothing if they are wrong.
    pub(crate) fn role_of(&self, name: &str, password: &str) -> Option<Role> {
        if name.is_empty() || password.is_empty() {
            return None;
        }
        // All are compared, each in constant time, so that an answer's delay says nothing about any of them.
        let others = self.others.iter().map(|account| (&account.credentials, account.role));
        let mut role = None;
        for (known, known_role) in std::iter::once((&self.admin, Role::Admin)).chain(others) {
            let right: Choice = name.as_bytes().ct_eq(known.user.as_bytes())
                & password.as_bytes().ct_eq(known.password.reveal().as_bytes());
            if bool::from(right) {
                role = role.max(Some(known_role));
            }
        }
        role
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_right_password_of_a_user_gives_the_users_role() {
        let credentials =
            |user: &str, password: &str| Credentials { user: user.into(), password: Secret::new(password.to_owned()) };
        let reader = Account { credentials: credentials("reader", "r"), role: Role::ReadOnly };
        let nobody = Account { credentials: credentials("nobody", ""), role: Role::Admin };
        let users = Users::new(credentials("admin", "a"), vec![reader, nobody]);
        assert_eq!(users.role_of("admin", "a"), Some(Role::Admin));
        assert_eq!(users.role_of("reader", "r"), Some(Role::ReadOnly));
        for (name, password) in [("admin", "r"), ("reader", "a"), ("nobody", ""), ("", ""), ("", "a"), ("admin", "")] {
            assert_eq!(users.role_of(name, password), None, "{name}");
        }
    }
}
