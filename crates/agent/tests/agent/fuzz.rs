//! What anybody on the network can send, with and without the password.

use proptest::prelude::*;
use proptest::test_runner::{TestError, TestRunner};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::machine::{Machine, PASSWORD, PATIENCE, base64_of};

/// Few cases, because each is a handshake; what is behind the edge is fuzzed without one beside the code.
fn runner(cases: u32) -> TestRunner {
    TestRunner::new(ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() })
}

/// Lines of requests, whole or torn, known or not, and bytes that are none.
fn requests() -> impl Strategy<Value = Vec<u8>> {
    let authorization = format!("Authorization: Basic {}\r\n", base64_of(&format!("director:{PASSWORD}")));
    let piece = prop_oneof![
        Just(b"POST /agent HTTP/1.1\r\n".to_vec()),
        Just(b"PUT /blobs/ab/fuzz HTTP/1.1\r\n".to_vec()),
        Just(b"GET /blobs/%2e%2e/%00 HTTP/1.0\r\n".to_vec()),
        Just(b"Host: agent\r\n".to_vec()),
        Just(authorization.into_bytes()),
        Just(b"Content-Length: 18446744073709551616\r\n".to_vec()),
        Just(b"Content-Length: 5\r\n".to_vec()),
        Just(b"Transfer-Encoding: chunked\r\n".to_vec()),
        Just(b"ffffffffffffffff\r\n".to_vec()),
        Just(b"Expect: 100-continue\r\n".to_vec()),
        Just(b"Upgrade: h2c\r\nConnection: upgrade\r\n".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(br#"{"method":"ping"}"#.to_vec()),
        proptest::collection::vec(any::<u8>(), 0..64),
    ];
    proptest::collection::vec(piece, 0..10).prop_map(|pieces| pieces.concat())
}

/// Sends bytes, says that no more come, and reads what there is to read.
async fn send(mut stream: impl AsyncReadExt + AsyncWriteExt + Unpin, bytes: &[u8]) {
    let exchange = async {
        if stream.write_all(bytes).await.is_ok() && stream.shutdown().await.is_ok() {
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
    };
    tokio::time::timeout(PATIENCE, exchange).await.expect("the agent ends every connection");
}

#[test]
fn no_bytes_on_the_wire_end_the_agent() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut machine = runtime.block_on(Machine::started_without_client_certificates());
    let pid = machine.pid();
    let unharmed = |result: Result<(), TestError<Vec<u8>>>| result.unwrap();
    unharmed(runner(150).run(&requests(), |bytes| {
        runtime.block_on(async { send(machine.connect().await, &bytes).await });
        Ok(())
    }));
    unharmed(runner(150).run(&proptest::collection::vec(any::<u8>(), 0..300), |bytes| {
        runtime.block_on(async {
            let stream = tokio::net::TcpStream::connect((machine.address, machine.port)).await.unwrap();
            send(stream, &bytes).await;
        });
        Ok(())
    }));
    unharmed(runner(100).run(&proptest::collection::vec(any::<u8>(), 0..300), |body| {
        let answer = runtime.block_on(machine.request("POST", "/agent", &body));
        prop_assert!([200, 500].contains(&answer.status), "{}", answer.status);
        Ok(())
    }));
    runtime.block_on(machine.director().ping()).unwrap();
    assert_eq!(machine.pid(), pid);
    assert!(!machine.console().contains("panicked"), "{}", machine.console());
    machine.kill();
}
