//! SQLite and PostgreSQL behind one pool, with numbered migrations.
