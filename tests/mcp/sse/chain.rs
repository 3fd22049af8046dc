//! Lictor in front of a Lictor in front of such a server: each hands out a place of its own.

use super::{a, event, message, open, post, taken};
use crate::{
    site::{Site, TD_ONE, call, request},
    stub::Stub,
};

/// What the near one may do at the far one.
const FAR: &str = r#"
@id("near") permit (principal == Agent::"spiffe://td-one.example.org/near", action, resource);
@id("no-lookup") forbid (principal, action, resource == Tool::"files/lookup");
"#;

#[tokio::test]
async fn a_place_leads_through_two_lictors() {
    let mut stub = Stub::scripted().await;
    let far = Site::to(&stub.url()).upstream("transport: sse").policies(FAR).start().await;
    let url = format!("https://{}/mcp", far.mutual);
    let far_id = "transport: sse, spiffeId: 'spiffe://td-one.example.org/lictor'";
    let near = Site::to(&url).upstream(far_id);
    TD_ONE.svid("/near").write(near.path(), &[&TD_ONE]);
    let near = near.start().await;
    let mut stream = open(a(&near).await, &mut stub, "s-1").await;
    let mut caller = a(&near).await;
    let at = "/messages?sessionId=s-1";
    taken(&mut caller, &mut stub, &stream.place, &request("initialize", "{}"), at).await;
    taken(&mut caller, &mut stub, &stream.place, &call("echo", "{}"), at).await;
    let result = "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n";
    stream.far.chunk(result).await;
    assert_eq!(event(&mut stream.reply).await, result);
    // What the far one refuses comes through as well.
    assert_eq!(post(&mut caller, &stream.place, call("lookup", "{}")).await.status, 202);
    assert_eq!(message(&mut stream.reply).await["error"]["data"]["kind"], "policy_denied");
    drop(stream);
    near.stop(4).await;
    far.stop(4).await;
}
