"""What every task does: it runs children, follows the chief's replies, and reports."""
