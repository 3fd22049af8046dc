//! What metrics tell of what a reload has taken away.

use super::*;
use crate::limits::hours_from_now;

/// What is in force no more isn't told of any more, and what stays goes on.
#[tokio::test]
async fn series_go_with_what_they_tell_of() {
    let stubs = [Stub::json().await, Stub::json().await, Stub::json().await];
    let place = |at: usize| {
        let url = stubs[at].url();
        url.strip_prefix("http://")
            .and_then(|it| it.strip_suffix("/mcp"))
            .map(str::to_owned)
            .expect("a URL")
    };
    let gone = format!(
        "{{ name: gone, rate: 1000/1h }}, \
         {{ name: closed, hours: {{ {}, zone: UTC }}, when: {{ tools: [lookup] }} }}, ",
        hours_from_now(6)
    );
    const STAYS: &str = "{ name: stays, rate: 1000/1h }";
    let lictor = Site::to_several(&[stubs[0].url(), stubs[1].url()])
        .upstream("healthCheck: { interval: 1h }")
        .with(&format!("rateLimits: [{gone}{STAYS}]"))
        .start()
        .await;
    for tool in ["echo", "lookup"] {
        post_to(&lictor, "/mcp", &call(tool, "{}")).await;
    }
    let tells = async |text: &str| metrics(&lictor).await.contains(text);
    let leaves = [
        "lictor_limits_total{limit=\"gone\"",
        "lictor_limit_keys{limit=\"gone\"",
        "lictor_limits_total{limit=\"closed\"",
        &format!("endpoint=\"{}\"", place(0)),
    ];
    let stays = [
        "lictor_limits_total{limit=\"stays\",outcome=\"taken\"} 1",
        "lictor_limit_keys{limit=\"stays\"} 1",
        &format!("endpoint=\"{}\"", place(1)),
        "lictor_upstream_breaker_state{state=\"closed\",upstream=\"files\"} 1",
    ];
    for text in leaves.iter().chain(&stays) {
        let told = async { while !tells(text).await {} };
        within(text, told).await;
    }
    edit(&lictor, "lictor.yaml", &gone, "");
    reloads(&lictor, APPLIED, 1.0).await;
    edit(&lictor, "lictor.yaml", &stubs[0].url(), &stubs[2].url());
    reloads(&lictor, APPLIED, 2.0).await;
    for text in leaves {
        let taken_out = async {
            while tells(text).await {
                sleep(PAUSE).await;
            }
        };
        within(text, taken_out).await;
    }
    for text in stays.iter().chain([&&*format!("endpoint=\"{}\"", place(2))]) {
        assert!(tells(text).await, "{text}");
    }
    lictor.stop(2).await;
}
