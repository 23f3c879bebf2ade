//! (helper A or B)
