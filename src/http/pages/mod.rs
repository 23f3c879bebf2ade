//! The dashboard: which locks are held, whether applies may run, what was asked for, and what a run prints.
//!
//! Made for somebody who is woken at night and has a phone: every page is complete HTML from the server, works without
//! scripts, and says who, since when and why. The one script appends the output of a run while it is printed.
//! Everything shown may come from a pull request, so everything is escaped by the templates; [`ansi`] alone writes HTML
//! by hand.

mod ansi;
mod apply_locks;
mod apply_switch;
mod apps;
mod audit;
mod commands;
mod forms;
mod home;
mod jobs;
mod leases;
mod locks;
mod operations;
mod owner_forms;
mod owners;
mod repos;
mod stream;
mod templates;
mod text;
mod visitor;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};

use super::Web;

pub(super) use templates::Templates;
pub(super) use text::shown;

/// Pages and static files.
pub(super) fn router() -> Router<Arc<Web>> {
    Router::new()
        .route("/", get(home::show))
        .route("/index.html", get(home::show))
        .route("/locks", get(home::show))
        // The classic name of a lock has slashes, and some proxies decode them.
        .route("/locks/{*id}", get(locks::show).post(locks::change))
        .route("/lock", get(locks::by_query))
        .route("/apply-lock/stop", post(apply_switch::stop))
        .route("/apply-lock/allow", post(apply_switch::allow))
        .route("/apply-locks", get(apply_locks::show).post(apply_locks::set))
        .route("/apply-locks/{id}/end", post(apply_locks::end))
        .route("/jobs/{id}", get(jobs::show))
        .route("/jobs/{id}/cancel", post(jobs::cancel))
        .route("/jobs/{id}/output.txt", get(jobs::plain))
        .route("/jobs/{id}/events", get(stream::events))
        .route("/operations", get(operations::show))
        .route("/operations/leases/release", post(leases::end))
        .route("/repos", get(repos::list))
        .route("/repos/{*repo}", get(repos::show).post(repos::sync))
        .route("/owners", get(owners::list).post(owner_forms::add))
        .route("/owners/{name}", get(owners::show))
        .route("/owners/{name}/remove", post(owner_forms::remove))
        .route("/owners/{name}/apps", post(owner_forms::add_app))
        .route("/owners/{name}/{things}/{id}/remove", post(owner_forms::remove_thing))
        .route("/claims", get(owners::claims))
        .route("/audit", get(audit::show))
        .route("/apps/{id}", get(apps::show))
        .route("/apps/{id}/cancel", post(apps::stop))
        .route("/apps/{id}/{deed}", post(apps::act))
        .route("/static/{hash}/{name}", get(templates::file))
}
