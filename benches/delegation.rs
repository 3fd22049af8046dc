//! What a chain of three hops costs: with its first hops known, with nothing known, and to make the next.

#![expect(clippy::expect_used, reason = "a benchmark that can't be set up has to stop")]

use std::{hint::black_box, sync::Arc};

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use lictor::{
    delegation::{
        Arrival, Capabilities, Chain, Mode, Next, Origin, Settings, Site, Verifier, Who, extend,
        originate,
    },
    identity::{self, Source, SpiffeId},
    telemetry::Clock,
};
use uuid::Uuid;

#[path = "../tests/support/ca.rs"]
#[expect(dead_code, reason = "its bad certificates are for the tests of identity")]
mod ca;

const BODY: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}"#;

/// Proxies of one trust domain.
struct Proxies {
    sources: Vec<(SpiffeId, Arc<Source>)>,
    settings: Settings,
    now: u64,
}

impl Proxies {
    fn new(runtime: &tokio::runtime::Runtime) -> Self {
        let ca = ca::Ca::new("td");
        let folder = tempfile::TempDir::new().expect("a folder");
        let source = |name: &str| {
            let directory = folder.path().join(name);
            std::fs::create_dir(&directory).expect("made");
            let written = ca.svid(&format!("/{name}")).write(&directory, &[&ca]);
            let ca::Written { certificate, key, bundles } = written;
            let files = identity::Files { certificate, key, bundles };
            let settings = identity::Settings::Files(files);
            let source = Source::start(settings, runtime.handle()).expect("starts");
            (SpiffeId::parse(&format!("spiffe://td/{name}")).expect("an ID"), source)
        };
        let sources: Vec<_> = ["a", "b", "c", "d"].map(source).into();
        let who = Who::parse("spiffe://td/a").expect("an ID");
        let settings =
            Settings { origins: vec![Origin { who, mode: Mode::Full }], ..Settings::default() };
        Self { sources, settings, now: Clock.unix().as_secs() }
    }

    /// A chain of so many hops, as it arrives, made anew from `before`.
    fn header(&self, before: Option<&Chain>) -> String {
        let from = before.map_or(0, Chain::depth);
        let (to, _) = self.sources.get(from + 1).expect("a next one");
        let capabilities = &Capabilities::UNLIMITED;
        let (http_method, method) = ("POST", "tools/call");
        let id = uuid::Uuid::now_v7();
        let next = Next { id, to, mode: None, capabilities, http_method, method, body: BODY };
        let (_, source) = self.sources.get(from).expect("a proxy");
        let snapshot = source.snapshot();
        let svid = snapshot.usable(self.now).expect("valid");
        let settings = &self.settings;
        match before {
            None => originate(svid, settings, Uuid::now_v7(), None, &next, self.now),
            Some(chain) => extend(svid, chain, settings, &next, self.now),
        }
        .expect("made")
    }

    fn verify(&self, verifier: &Verifier, header: &str, hops: usize) -> Chain {
        let (peer, _) = self.sources.get(hops - 1).expect("a proxy");
        let (_, own) = self.sources.get(hops).expect("a proxy");
        let site = Site { snapshot: &own.snapshot(), settings: &self.settings, now: self.now };
        let (http_method, method) = ("POST", "tools/call");
        let arrival = Arrival { header, peer, http_method, method, body: BODY };
        verifier.verify(&arrival, &site).and_then(|it| it.taken(true)).expect("holds")
    }
}

fn delegation(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let proxies = Proxies::new(&runtime);
    let first = proxies.verify(&Verifier::new(), &proxies.header(None), 1);
    let second = proxies.verify(&Verifier::new(), &proxies.header(Some(&first)), 2);
    let mut group = criterion.benchmark_group("delegation");
    let verifier = Verifier::new();
    group.bench_function("three hops, two known", |bencher| {
        bencher.iter_batched(
            || proxies.header(Some(&second)),
            |header| black_box(proxies.verify(&verifier, &header, 3)),
            BatchSize::SmallInput,
        );
    });
    group.bench_function("three hops, none known", |bencher| {
        bencher.iter_batched(
            || (Verifier::new(), proxies.header(Some(&second))),
            |(verifier, header)| {
                let chain = proxies.verify(&verifier, &header, 3);
                black_box((verifier, chain))
            },
            BatchSize::SmallInput,
        );
    });
    group.bench_function("the third hop made", |bencher| {
        bencher.iter(|| black_box(proxies.header(Some(&second))));
    });
    group.finish();
}

criterion_group!(benches, delegation);
criterion_main!(benches);
