//! A send that a policy refuses is an error of that one call, and the client goes on.

use crate::{
    clients::{Client, JAVASCRIPT, JSON_RPC, PYTHON, REST, Report, Sight},
    site::{PERMIT, Site},
};

/// What callers are told, with a name in place of the id.
const REASON: &str = "data is not for this agent (decision <1>)";

/// Nobody may send data.
const FORBID: &str = r#"
@id("no-data") @reason("data is not for this agent")
forbid (principal, action in [Action::"SendMessage", Action::"SendStreamingMessage"], resource)
when { context.a2a.parts.contains("data") };
"#;

#[tokio::test]
async fn a_refused_send_is_an_error_of_that_call() {
    let site = Site::start(&format!("{PERMIT}\n{FORBID}")).await;
    let place = site.plain();
    for sdk in [PYTHON, JAVASCRIPT] {
        for (binding, version) in
            [(JSON_RPC, "1.0"), (JSON_RPC, "0.3"), (REST, "1.0"), (REST, "0.3")]
        {
            let client = Client { sdk, binding, version };
            judge(client, &client.report(&place, &["--refused"]).await);
        }
    }
    site.stop().await;
}

fn judge(client: Client, report: &Report) {
    for step in ["send_parts", "stream_parts"] {
        let Some(Sight::Error(error)) = report.get(step) else {
            panic!("{client:?} {step}: {:?}", report.get(step));
        };
        // Wherever an SDK puts it, the reason is there, and the decision to ask the operator about.
        let error = error.to_string();
        assert!(error.contains(REASON), "{client:?} {step}: {error}");
    }
    for step in ["send_message", "stream_message"] {
        let went_on = matches!(report.get(step), Some(Sight::Seen(_)));
        assert!(went_on, "{client:?} {step}: {:?}", report.get(step));
    }
}
