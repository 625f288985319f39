//! The alerts of the chart are those that the page says it makes.

use longshore::Reason;

/// What is compared of an alert: its name, its expression, and how long that has to hold.
type Alert = (String, String, Option<String>);

#[test]
fn operating_shows_every_alert_of_the_chart() {
    let page = include_str!("../../../docs/operating.md");
    let (_, table) = page.split_once("| alert | when | for | means |\n").unwrap();
    let (table, _) = table.split_once("\n\n").unwrap();
    let rows = table.lines().filter_map(|row| row.strip_prefix("| `")).map(|row| {
        let (name, row) = row.split_once("` | `").unwrap();
        let (expression, row) = row.split_once("` | ").unwrap();
        let (lasts, _) = row.split_once("| ").unwrap();
        // A bar would end the cell.
        let expression = expression.replace("\\|", "|");
        (name.to_owned(), expression, Some(lasts.trim().to_owned()).filter(|it| !it.is_empty()))
    });
    assert_eq!(rows.collect::<Vec<_>>(), alerts());
}

/// Whatever `Ready` is true for, and is not all well, is worth an alert: a revoked key may still work.
#[test]
fn an_alert_tells_of_every_server_that_is_not_all_right() {
    let alerts = alerts();
    let expression = |name: &str| {
        let (_, expression, _) = alerts.iter().find(|(alert, ..)| alert == name).unwrap();
        expression.clone()
    };
    let [ready, refused] = [Reason::Ready, Reason::ConfigurationRefused].map(Reason::name);
    let others = format!("ready=\"True\", reason!~\"{ready}|{refused}\"");
    assert!(expression("LongshoreServersServePrevious").contains(&others));
    assert!(
        expression("LongshoreRevokedKeysHold").contains(&format!("ready=\"True\", reason=\"{refused}\""))
    );
    let scaled = format!("ready=\"False\", reason!=\"{}\"", Reason::ScaledToZero.name());
    assert!(expression("LongshoreServersNotReady").contains(&scaled));
}

/// As they are in the namespace that the pages take the release to be in.
fn alerts() -> Vec<Alert> {
    let template = include_str!("../../../charts/longshore/templates/prometheusrule.yaml");
    let own = "namespace=\"longshore-system\"";
    let template = template
        .replace("{ {{- $own -}} }", &format!("{{{own}}}"))
        .replace("{ {{- $own -}} ", &format!("{{{own}"));
    let alerts = template.split("- alert: ").skip(1).map(|rule| {
        let value =
            |key: &str| rule.lines().find_map(|line| line.trim().strip_prefix(key)).map(str::to_owned);
        let name = rule.lines().next().unwrap_or_default().to_owned();
        (name, value("expr: ").unwrap(), value("for: "))
    });
    alerts.collect()
}
