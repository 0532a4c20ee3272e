//! Certificates that live for seconds, so that years pass while a test runs.

use std::fs;

use super::api::Api;
use super::{NO_RESURRECTOR, data, three_instances};

/// Of the director and of agents a few times, of the CA once.
#[test]
fn every_certificate_is_replaced_while_everything_runs_and_no_vm_is_recreated() {
    let settings = format!("{NO_RESURRECTOR}certificates: {{lifetime: 30s, ca_lifetime: 60s}}\n");
    let (mut site, vms) = three_instances(&settings);
    let state = site.state_dir();
    // For a moment, one that is being replaced is not there.
    let read = |name: &str| fs::read_to_string(state.join(name)).unwrap_or_default();
    let (ca, server, client) = (read("ca.pem"), read("pki/server.pem"), read("pki/client.pem"));

    site.wait_until("the end of the first certificates", |_| {
        let now = (read("pki/server.pem"), read("pki/client.pem"));
        !now.0.is_empty() && now.0 != server && !now.1.is_empty() && now.1 != client
    });
    site.wait_until("the announcement of the next CA", |_| read("ca.pem").starts_with(&ca) && read("ca.pem") != ca);
    site.wait_until("the handover", |_| !read("ca.pem").starts_with(&ca));
    site.wait_until("the end of the first CA", |_| !read("ca.pem").contains(&ca));

    // Every VM that was there before has new certificates, and is reached as before.
    let api = Api::of(&site);
    for vm in &vms {
        api.wait_for_agent("example", vm);
    }
    assert_eq!((site.in_cloud("vms"), data(&site)), (vms.clone(), vms));
    let tasks = api.get("/tasks?verbose=2");
    let renewals: Vec<_> =
        tasks.as_array().unwrap().iter().filter(|task| task["description"] == "renew certificates").collect();
    assert!(renewals.len() >= 2, "{tasks}");
    assert!(!site.director_log().contains("cannot be renewed"), "{}", site.director_log());
    // And can be deployed to.
    site.ok(&["-n", "-d", "example", "recreate", "db/0"]);
}
