//! Attacks that once succeeded, each as a story.

mod shown;
