pub mod supervise;
