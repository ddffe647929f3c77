"""Datagrams as objects in a shared folder or a bucket, and bundles of them that are carried by hand."""
