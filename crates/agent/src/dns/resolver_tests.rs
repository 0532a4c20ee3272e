use super::super::records::tests::example;
use super::*;
use crate::dns::wire::{A, AAAA, question, read_answer};

async fn started(recursors: Vec<SocketAddr>) -> (Arc<Resolver>, SocketAddr) {
    let health = PathBuf::from("/nonexistent/health.json");
    let resolver = Arc::new(Resolver::new(example(), "agent-9".into(), health));
    let sockets = Sockets::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = sockets.address().unwrap();
    tokio::spawn(resolver.clone().serve(sockets, recursors));
    (resolver, address)
}

async fn ask(server: SocketAddr, packet: &[u8]) -> Option<Vec<u8>> {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.send_to(packet, server).await.unwrap();
    let mut buffer = [0; 4096];
    let received = timeout(Duration::from_secs(5), socket.recv_from(&mut buffer)).await.ok()?;
    Some(buffer[..received.unwrap().0].to_vec())
}

async fn addresses(server: SocketAddr, name: &str, kind: u16) -> (u8, Vec<String>) {
    let (outcome, mut found) = read_answer(&ask(server, &question(5, name, kind, None)).await.unwrap());
    found.sort();
    (outcome, found.iter().map(IpAddr::to_string).collect())
}

#[tokio::test]
async fn names_of_instances_are_answered_by_udp_and_tcp() {
    let (resolver, server) = started(Vec::new()).await;
    let both = vec!["10.0.0.1".to_owned(), "10.0.0.2".to_owned()];
    assert_eq!(addresses(server, "q-s0.db.a.shop.bosh", A).await, (0, both.clone()));
    assert_eq!(addresses(server, "Q-S0.DB.a.SHOP.bosh", A).await, (0, both.clone()));
    assert_eq!(addresses(server, "q-s0.db.a.shop.bosh", AAAA).await, (0, vec![]), "it is there, with other addresses");
    assert_eq!(addresses(server, "u3.web.a.shop.bosh", AAAA).await, (0, vec!["fd00::3".to_owned()]));
    assert_eq!(addresses(server, "u9.web.a.shop.bosh", A).await, (3, vec![]));
    assert_eq!(addresses(server, "example.com", A).await, (2, vec![]), "nobody knows who knows it");

    let mut stream = TcpStream::connect(server).await.unwrap();
    for _ in 0..3 {
        write_message(&mut stream, &question(6, "q-s0.q-g9.bosh", A, None)).await.unwrap();
        let answer = read_message(&mut stream).await.unwrap();
        assert_eq!(read_answer(&answer).1.len(), 3);
    }
    resolver.learn(Records::default());
    assert_eq!(addresses(server, "q-s0.db.a.shop.bosh", A).await, (3, vec![]), "what is gone is gone at once");
}

#[tokio::test]
async fn addresses_of_a_name_come_first_in_turn() {
    let (_, server) = started(Vec::new()).await;
    let mut firsts = std::collections::BTreeSet::new();
    for _ in 0..4 {
        let answer = ask(server, &question(5, "q-s0.db.a.shop.bosh", A, None)).await.unwrap();
        firsts.insert(read_answer(&answer).1[0]);
    }
    assert_eq!(firsts.len(), 2);
}

#[tokio::test]
async fn other_names_are_asked_elsewhere_and_a_dead_server_is_passed_over() {
    let dead = UdpSocket::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    // Knows instances only, so it is one that other names can be taken from here: it answers for its own.
    let (_, other) = started(Vec::new()).await;
    let health = PathBuf::from("/nonexistent/health.json");
    let resolver = Arc::new(Resolver::new(Records::default(), "agent-9".into(), health));
    resolver.recursors.set(vec![dead, other]).unwrap();
    let packet = question(9, "db.internal", A, None);
    let asked = Question::parse(&packet).unwrap();
    for by_tcp in [false, true] {
        let answer = resolver.recurse(&asked, by_tcp).await.unwrap();
        assert_eq!((&answer[..2], read_answer(&answer).1.len()), (&[0, 9][..], 3), "by TCP: {by_tcp}");
    }
}

#[tokio::test]
async fn garbage_is_survived_and_answers_are_never_answered() {
    let (_, server) = started(Vec::new()).await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut state = 3_u64;
    for length in 0..400 {
        let mut packet = Vec::with_capacity(length);
        for _ in 0..length {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            packet.push((state >> 40) as u8);
        }
        if length > 2 {
            packet[2] |= 0x80;
        }
        socket.send_to(&packet, server).await.unwrap();
    }
    let mut stream = TcpStream::connect(server).await.unwrap();
    stream.write_all(&[0xff; 300]).await.unwrap();
    drop(stream);
    assert_eq!(addresses(server, "u1.db.a.shop.bosh", A).await, (0, vec!["10.0.0.1".to_owned()]));
    let mut buffer = [0; 100];
    let nothing = timeout(Duration::from_millis(200), socket.recv_from(&mut buffer)).await;
    assert!(nothing.is_err(), "an answer came to something that claimed to be one");
}

#[test]
fn the_own_server_comes_first_once_and_the_others_are_asked() {
    let own = "127.53.0.1".parse().unwrap();
    let before = "search x\nnameserver 10.0.0.2\n nameserver fd00::2\n";
    let after = preferring(before, own);
    assert_eq!(after, format!("nameserver 127.53.0.1\n{before}"));
    assert_eq!(preferring(&after, own), after);
    let servers = ["10.0.0.2:53".parse().unwrap(), "[fd00::2]:53".parse().unwrap()];
    assert_eq!(name_servers(&after, own), servers);
}

#[test]
fn settings_of_the_resolver_have_defaults() {
    let read = |text: &str| serde_json::from_str::<ResolverSettings>(text).unwrap();
    let usual = read("{}");
    assert_eq!((usual.address.to_string().as_str(), usual.port), ("127.53.0.1", 53));
    assert!(usual.override_nameserver && usual.recursors.is_empty());
    let given = read(r#"{"address": "127.0.0.9", "port": 5353, "recursors": ["10.0.0.2", "10.0.0.3:54"]}"#);
    assert_eq!(given.recursors[1], Recursor("10.0.0.3:54".parse().unwrap()));
    assert!(serde_json::from_str::<ResolverSettings>(r#"{"recursors": ["nowhere"]}"#).is_err());
}
