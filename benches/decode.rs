//! How fast messages are scanned and decoded: `cargo bench --bench decode`.

use std::hint::black_box;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use http::{HeaderMap, HeaderValue, Method};
use lictor::protocol::{json, mcp};

const KIB: usize = 1024;

/// A `tools/call` whose arguments are made of `piece`s until the text is about `size` bytes long.
fn call(size: usize, piece: impl Fn(usize) -> String) -> Bytes {
    let mut text = String::from(r#"{"jsonrpc":"2.0","id":4711,"method":"tools/call","params":{"#);
    text.push_str(r#""name":"search","_meta":{"progressToken":1},"arguments":{"#);
    for count in 0.. {
        let comma = if count == 0 { "" } else { "," };
        text.push_str(comma);
        text.push_str(&piece(count));
        if text.len() + 3 >= size {
            break;
        }
    }
    text.push_str("}}}");
    text.into()
}

/// What an agent typically sends: short members of all kinds, some text.
fn typical(count: usize) -> String {
    let options = r#"{"recursive":true,"include":["src","tests"],"exclude":null}"#;
    let text = "a few words of text";
    format!(r#""field_{count}":"{text}","limit_{count}":{count},"options_{count}":{options}"#)
}

fn strings(count: usize) -> String {
    format!(r#""file_{count}":"{}""#, "The quick brown fox jumps over the lazy dog.\\n".repeat(80))
}

fn keys(count: usize) -> String {
    format!(r#""key_{count}":{}"#, count % 10)
}

fn objects(count: usize) -> String {
    format!(r#""row_{count}":{{"id":{count},"name":"x","ok":true,"tags":[],"next":null}}"#)
}

fn numbers(count: usize) -> String {
    format!(r#""v_{count}":[{},-17.25,3.5e-7,0,{},12345678901234567890]"#, count * 7919, count + 1)
}

fn decode(criterion: &mut Criterion) {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    headers.insert("mcp-protocol-version", HeaderValue::from_static("2025-11-25"));
    for (name, body) in [
        ("typical 1 KiB", call(KIB, typical)),
        ("typical 32 KiB", call(32 * KIB, typical)),
        ("strings 1 MiB", call(KIB * KIB, strings)),
        ("keys 1 MiB", call(KIB * KIB, keys)),
        ("objects 1 MiB", call(KIB * KIB, objects)),
        ("numbers 1 MiB", call(KIB * KIB, numbers)),
    ] {
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_function("scan", |bencher| {
            bencher.iter(|| {
                drop(black_box(json::scan(black_box(&body), json::Limits::default())));
            });
        });
        group.bench_function("decode", |bencher| {
            bencher.iter(|| {
                drop(black_box(mcp::decode(&Method::POST, &headers, black_box(body.clone()))));
            });
        });
        group.bench_function("serde_json, ignored", |bencher| {
            bencher.iter(|| {
                drop(black_box(serde_json::from_slice::<serde::de::IgnoredAny>(black_box(&body))));
            });
        });
        group.finish();
    }
}

criterion_group!(benches, decode);
criterion_main!(benches);
