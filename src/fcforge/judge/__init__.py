"""Tables, figures and page of judged generators."""
