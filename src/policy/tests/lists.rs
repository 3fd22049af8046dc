//! Lists.

use super::*;

#[test]
fn lists_hold_what_some_call_could_do() {
    let read = r#"action == Action::"files/read_file", resource"#;
    for (policy, listed) in [
        (format!("permit(principal, {read}) when {{ context.input.path like \"a*\" }};"), true),
        (
            format!(
                "permit(principal, {read}) when {{ principal has tenant && \
                 context.input.path == \"a\" && principal.tenant == \"acme\" }};"
            ),
            true,
        ),
        (
            format!(
                "permit(principal, {read}) when {{ principal has tenant && \
                 context.input.path == \"a\" && principal.tenant == \"other\" }};"
            ),
            false,
        ),
        (
            format!(
                "permit(principal, {read}) unless {{ context.input.path == \"a\" || \
                 principal in Group::\"acme\" }};"
            ),
            false,
        ),
        (
            format!(
                "permit(principal, action, resource); \
                 forbid(principal, {read}) when {{ context.input.path == \"a\" }};"
            ),
            true,
        ),
        (
            format!(
                "permit(principal, action, resource); \
                 forbid(principal, {read}) when {{ principal in Group::\"acme\" }};"
            ),
            false,
        ),
        // The list is asked with the method and the era of the call.
        (
            r#"permit(principal, action, resource) when { context.method == "tools/call" };"#
                .into(),
            true,
        ),
        (
            r#"permit(principal, action, resource) when { context.method == "tools/list" };"#
                .into(),
            false,
        ),
        (r#"permit(principal, action, resource) when { context.era == "legacy" };"#.into(), true),
        (r#"permit(principal, action, resource) when { context.era == "modern" };"#.into(), false),
        (
            r#"permit(principal, action, resource) when { context.listener == "inbound" };"#.into(),
            true,
        ),
        (r#"permit(principal, action in Action::"list", resource);"#.into(), false),
    ] {
        let policies = policies(&policy);
        let ask = Ask::method(READER, "tools/list", tool("read_file"));
        assert_eq!(ask.listed(&policies), listed, "{policy}");
        let same = Ask::call(READER, "read_file").listed(&policies);
        assert_eq!(same, listed, "asked by the call: {policy}");
    }
}

#[test]
fn any_call_that_touches_an_item_lists_it() {
    let resource = Target::Resource("file:///a".into());
    for (action, legacy, modern) in [
        ("resources/read", true, true),
        ("resources/subscribe", true, false),
        ("subscriptions/listen", false, true),
        ("completion/complete", true, true),
        ("prompts/get", false, false),
    ] {
        let policies =
            policies(&format!("permit(principal, action == Action::\"{action}\", resource);"));
        for (era, listed) in [(Era::Legacy, legacy), (Era::Modern, modern)] {
            let ask = Ask { era, ..Ask::method(READER, "resources/list", resource.clone()) };
            assert_eq!(ask.listed(&policies), listed, "{action} {era:?}");
        }
    }
}

#[test]
fn templates_are_listed_if_some_resource_could_be_read() {
    for (policy, listed) in [
        (r#"permit(principal, action, resource == Resource::"files/file:///a");"#, true),
        (r#"permit(principal, action, resource in Resource::"files/file:///a");"#, true),
        (r#"permit(principal, action, resource == Resource::"other/file:///a");"#, false),
        (r#"permit(principal, action, resource in Server::"files");"#, true),
        (r#"permit(principal, action, resource is Resource in Server::"files");"#, true),
        (r#"permit(principal, action, resource in Server::"other");"#, false),
        (r#"permit(principal, action, resource == Tool::"files/echo");"#, false),
        (
            r#"permit(principal, action, resource is Resource) when { resource.uri like "file:*" };"#,
            true,
        ),
        (
            r#"permit(principal, action, resource is Resource) when { resource.server == "other" };"#,
            false,
        ),
        (r#"permit(principal, action, resource) when { resource in Server::"other" };"#, false),
        (
            r#"permit(principal, action, resource) when { resource.tags.contains("internal") };"#,
            true,
        ),
        (
            r#"permit(principal, action, resource);
               forbid(principal, action, resource == Resource::"files/file:///a");"#,
            true,
        ),
        (
            r#"permit(principal, action, resource);
               forbid(principal, action, resource is Resource) when { resource.scheme == "file" };"#,
            true,
        ),
        (
            r#"permit(principal, action, resource);
               forbid(principal, action, resource in Server::"files");"#,
            false,
        ),
        (
            r#"permit(principal, action, resource);
               forbid(principal, action, resource) when { resource.tags.contains("internal") };"#,
            false,
        ),
    ] {
        let policies = policies(policy);
        let template = Target::Template("file:///{path}".into());
        let ask = Ask::method(READER, "resources/templates/list", template.clone());
        assert_eq!(ask.listed(&policies), listed, "{policy}");
        assert!(!Ask::method(READER, "resources/read", template).permitted(&policies));
    }
}
